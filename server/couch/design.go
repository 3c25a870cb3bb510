package couch

import "net/http"

// checkDesign refuses design documents of a wrong form, as CouchDB does when
// they are written.
func checkDesign(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	language := "javascript"
	_, err := fields(body, func(name, v []byte) error {
		switch n, _ := unquote(name); n {
		case "language":
			s, ok := unquote(v)
			if !ok {
				return wrongType("language", "string")
			}
			language = s
		case "validate_doc_update":
			if v[0] != '"' {
				return wrongType(n, "string")
			}
		case "options":
			if v[0] != '{' {
				return wrongType(n, "object")
			}
		case "rewrites":
			if v[0] != '[' && v[0] != '"' {
				return wrongType(n, "array or string")
			}
		case "filters", "updates", "shows", "lists":
			return checkFunctions(n, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	m, err := members(body, "views")
	if err != nil || m["views"] == nil {
		return err
	}
	ok, err := fields(m["views"], func(name, v []byte) error {
		n, _ := unquote(name)
		return checkView(n, v, language)
	})
	if !ok {
		return wrongType("views", "object")
	}
	return err
}

func wrongType(field, want string) *failure {
	return invalidDesign("`" + field + "` field must have " + want + " type")
}

func invalidDesign(reason string) *failure {
	return &failure{status: http.StatusBadRequest, code: "invalid_design_doc", reason: reason}
}

func checkFunctions(section string, v []byte) error {
	ok, err := fields(v, func(name, f []byte) error {
		if f[0] != '"' && f[0] != '{' {
			n, _ := unquote(name)
			return wrongType(section+"."+n, "string or object")
		}
		return nil
	})
	if !ok {
		return wrongType(section, "object")
	}
	return err
}

// builtinReduces are those whose names begin with an underscore.
var builtinReduces = map[string]bool{
	"_sum": true, "_count": true, "_stats": true, "_approx_count_distinct": true, "_first": true, "_last": true,
}

func checkView(name string, v []byte, language string) error {
	if v[0] != '{' {
		return wrongType("views."+name, "object")
	}
	if name == "lib" {
		return nil
	}
	m, err := members(v, "map", "reduce")
	if err != nil {
		return err
	}
	switch mapper := m["map"]; {
	case mapper == nil:
		return invalidDesign("View `" + name + "` must contain map function")
	case mapper[0] != '"' && (language != "query" || mapper[0] != '{'):
		return wrongType("views."+name+".map", "string")
	}
	reduce := m["reduce"]
	if reduce == nil {
		return nil
	}
	text, ok := unquote(reduce)
	if !ok {
		return wrongType("views."+name+".reduce", "string")
	}
	if len(text) > 0 && text[0] == '_' && !builtinReduces[text] && !numberedReduce(text) {
		return invalidDesign("`" + text + "` is not a supported reduce function.")
	}
	return nil
}

// numberedReduce tells _top_N and _bottom_N.
func numberedReduce(text string) bool {
	for _, prefix := range []string{"_top_", "_bottom_"} {
		if len(text) > len(prefix) && text[:len(prefix)] == prefix {
			for _, c := range text[len(prefix):] {
				if c < '0' || c > '9' {
					return false
				}
			}
			return true
		}
	}
	return false
}
