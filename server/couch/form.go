package couch

import "net/http"

// postForm answers POST to a document, which browsers' forms send.
func (q *request) postForm(string) error {
	if q.r.Header.Get("Referer") == "" {
		return errNoReferer
	}
	return unsupportedType("Content-Type must be multipart/form-data")
}

var _ = http.MethodPost
