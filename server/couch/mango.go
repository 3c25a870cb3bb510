package couch

import "github.com/osierdb/osier"

// errNoMango is the answer where selectors are needed.
var errNoMango = notImplemented("Queries by selector are not available.")

func (q *request) find() error { return q.mango() }

func (q *request) explainFind() error { return q.mango() }

func (q *request) index() error { return q.mango() }

func (q *request) mango() error {
	if q.method == "POST" {
		if err := q.wantJSON(); err != nil {
			return err
		}
	}
	return errNoMango
}

// filterBySelector reads the filter _selector.
func (q *request) filterBySelector(body []byte) (filter, error) {
	if body == nil {
		return filter{}, badRequest("Selector must be specified in POST payload")
	}
	m, err := members(body, "selector", "fields")
	if err != nil {
		return filter{}, err
	}
	if s := m["selector"]; len(s) == 0 || s[0] != '{' {
		return filter{}, badRequest("Selector error: expected a JSON object")
	}
	return filter{}, errNoMango
}

var _ = osier.Document{}
