package pot

import (
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// tag is a parsed struct tag.
type tag struct {
	name   string
	skip   bool
	omit   omitRule
	inline bool
	rest   bool // an inline map
	enum   bool
	tuple  bool
	unit   int // of a time as a number, in nanoseconds
}

var tagOptions = map[string]func(*tag){
	"omitzero":  func(t *tag) { t.omit = omitZero },
	"omitempty": func(t *tag) { t.omit = omitEmpty },
	"inline":    func(t *tag) { t.inline = true },
	"enum":      func(t *tag) { t.enum = true },
	"tuple":     func(t *tag) { t.tuple = true },
	"unix":      func(t *tag) { t.unit = int(time.Second) },
	"unixmilli": func(t *tag) { t.unit = int(time.Millisecond) },
	"unixmicro": func(t *tag) { t.unit = int(time.Microsecond) },
	"unixnano":  func(t *tag) { t.unit = 1 },
}

// parseTag reads the pot tag of a field, or else its json tag, of which only
// the name and the omit options mean anything here.
func parseTag(f reflect.StructField) (tag, error) {
	text, own := f.Tag.Lookup("pot")
	if !own {
		text = f.Tag.Get("json")
	}
	if text == "-" {
		return tag{skip: true}, nil
	}
	name, rest, _ := strings.Cut(text, ",")
	t := tag{name: name}
	for rest != "" {
		var opt string
		opt, rest, _ = strings.Cut(rest, ",")
		set := tagOptions[opt]
		switch {
		case set == nil && own:
			return t, encodeError(ErrUnsupported, "field %s: unknown tag option %q", f.Name, opt)
		case set != nil && (own || opt == "omitzero" || opt == "omitempty"):
			set(&t)
		}
	}
	if !utf8.ValidString(t.name) {
		return t, encodeError(ErrUTF8, "field %s: name in tag", f.Name)
	}
	return t, nil
}

// candidate is a member of a struct before Go's rules of visibility decide.
type candidate struct {
	name   string
	named  bool // by its tag
	tag    tag
	typ    reflect.Type
	offset uintptr
	via    []step
	index  []int
}

type fieldSet struct {
	fields []candidate
	tuple  bool
}

// collectFields returns the members of a struct in order of declaration, those
// of embedded and inline structs in their place.
func collectFields(t reflect.Type) (fieldSet, error) {
	var set fieldSet
	c := collector{onPath: make(map[reflect.Type]bool)}
	if err := c.walk(t, candidate{}); err != nil {
		return set, err
	}
	set.tuple = c.tuple
	byName := make(map[string][]candidate)
	for _, f := range c.found {
		byName[f.name] = append(byName[f.name], f)
	}
	for _, f := range c.found {
		if f.tag.rest || dominant(byName[f.name], f) {
			set.fields = append(set.fields, f)
		}
	}
	return set, nil
}

// dominant reports whether f is the one that Go's rules let be seen: the least
// nested, and among equals the only one named by a tag.
func dominant(all []candidate, f candidate) bool {
	for _, o := range all {
		if slices.Equal(o.index, f.index) || o.tag.rest {
			continue
		}
		switch {
		case len(o.index) < len(f.index):
			return false
		case len(o.index) == len(f.index) && (o.named || !f.named):
			return false
		}
	}
	return true
}

type collector struct {
	found  []candidate
	onPath map[reflect.Type]bool
	tuple  bool
}

func (c *collector) walk(t reflect.Type, base candidate) error {
	if c.onPath[t] {
		return nil // recursion through embedding adds nothing that can be seen
	}
	c.onPath[t] = true
	defer delete(c.onPath, t)
	for i := range t.NumField() {
		sf := t.Field(i)
		tg, err := parseTag(sf)
		if err != nil {
			return err
		}
		if sf.Name == "_" && tg.tuple && len(base.index) == 0 {
			c.tuple = true
		}
		if tg.skip || !sf.IsExported() && !sf.Anonymous {
			continue
		}
		f := candidate{
			name: sf.Name, named: tg.name != "", tag: tg, typ: sf.Type,
			offset: base.offset + sf.Offset, via: base.via, index: append(slices.Clone(base.index), i),
		}
		if f.named {
			f.name = tg.name
		}
		if err := c.member(sf, f); err != nil {
			return err
		}
	}
	return nil
}

// member adds one field, or the fields within it.
func (c *collector) member(sf reflect.StructField, f candidate) error {
	inner, ptr := sf.Type, false
	if inner.Kind() == reflect.Pointer && inner.Name() == "" {
		inner, ptr = inner.Elem(), true
	}
	flatten := f.tag.inline || sf.Anonymous && !f.named && inner != timeType && inner != bigIntType
	switch {
	case flatten && inner.Kind() == reflect.Struct:
		if ptr {
			f.via = append(slices.Clone(f.via), step{f.offset, inner})
			f.offset = 0
		}
		return c.walk(inner, f)
	case f.tag.inline && sf.Type.Kind() == reflect.Map && sf.Type.Key().Kind() == reflect.String && len(f.via) == 0:
		f.tag.rest = true
	case f.tag.inline:
		return encodeError(ErrUnsupported, "field %s: option inline is for structs and maps with string keys", sf.Name)
	case !sf.IsExported() && inner.Kind() != reflect.Struct:
		return nil
	}
	c.found = append(c.found, f)
	return nil
}
