package couch

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// failure is an answer that refuses a request, in CouchDB's words.
type failure struct {
	status int
	code   string // the member "error"
	reason string
	allow  string // for 405
	cause  error  // for the log; may be nil
}

func (f *failure) Error() string { return f.code + ": " + f.reason }

func (f *failure) Unwrap() error { return f.cause }

// badRequest is a 400 in general.
func badRequest(reason string) *failure {
	return &failure{status: http.StatusBadRequest, code: "bad_request", reason: reason}
}

// queryError is a parameter of a view or of _all_docs that cannot be read.
func queryError(reason string) *failure {
	return &failure{status: http.StatusBadRequest, code: "query_parse_error", reason: reason}
}

func invalidDoc(reason string) *failure {
	return &failure{status: http.StatusBadRequest, code: "doc_validation", reason: reason}
}

func illegalID(reason string) *failure {
	return &failure{status: http.StatusBadRequest, code: "illegal_docid", reason: reason}
}

func notFound(reason string) *failure {
	return &failure{status: http.StatusNotFound, code: "not_found", reason: reason}
}

func missingStub(id, name string) *failure {
	return &failure{status: http.StatusPreconditionFailed, code: "missing_stub",
		reason: "Invalid attachment stub in " + id + " for " + name}
}

func unsupportedType(reason string) *failure {
	return &failure{status: http.StatusUnsupportedMediaType, code: "bad_content_type", reason: reason}
}

func tooLarge(reason string) *failure {
	return &failure{status: http.StatusRequestEntityTooLarge, code: "document_too_large", reason: reason}
}

// notImplemented refuses what a later version will have.
func notImplemented(what string) *failure {
	return &failure{status: http.StatusNotImplemented, code: "not_implemented", reason: what}
}

// methodNotAllowed names the methods that the path takes.
func methodNotAllowed(allow string) *failure {
	return &failure{status: http.StatusMethodNotAllowed, code: "method_not_allowed", reason: "Only " + allow + " allowed", allow: allow}
}

// The refusals that have one text.
var (
	errBadJSON     = badRequest("invalid UTF-8 JSON")
	errNotObject   = badRequest("Document must be a JSON object")
	errBodyObject  = badRequest("Request body must be a JSON object")
	errRevFormat   = badRequest("Invalid rev format")
	errRevList     = badRequest("Invalid list of revisions")
	errConflict    = &failure{status: http.StatusConflict, code: "conflict", reason: "Document update conflict."}
	errMissing     = notFound("missing")
	errDeleted     = notFound("deleted")
	errNoDB        = notFound("Database does not exist.")
	errJSONType    = unsupportedType("Content-Type must be application/json")
	errEncoding    = unsupportedType("Only gzip and identity content-encodings are supported")
	errGzip        = badRequest("Request body is not properly gzipped.")
	errNoAtt       = notFound("Document is missing attachment")
	errReserved    = illegalID("Only reserved document ids may start with underscore.")
	errLocalAtts   = badRequest("_local documents do not accept attachments.")
	errNoReferer   = badRequest("Referer header required.")
	errServerAdmin = &failure{status: http.StatusUnauthorized, code: "unauthorized", reason: "You are not a server admin."}
)

// kinds is CouchDB's status and code for each kind of error. Kinds that are not
// here are failures of the server.
var kinds = map[osier.Kind]failure{
	osier.KindInvalid:     {status: http.StatusBadRequest, code: "bad_request"},
	osier.KindNotFound:    {status: http.StatusNotFound, code: "not_found", reason: "missing"},
	osier.KindDeleted:     {status: http.StatusNotFound, code: "not_found", reason: "deleted"},
	osier.KindConflict:    {status: http.StatusConflict, code: "conflict", reason: "Document update conflict."},
	osier.KindExists:      {status: http.StatusPreconditionFailed, code: "file_exists", reason: "The database could not be created, the file already exists."},
	osier.KindDenied:      {status: http.StatusForbidden, code: "forbidden", reason: "You are not allowed to access this db."},
	osier.KindTooLarge:    {status: http.StatusRequestEntityTooLarge, code: "too_large"},
	osier.KindFull:        {status: http.StatusInsufficientStorage, code: "insufficient_storage", reason: "The disk has no room left for writes."},
	osier.KindReadOnly:    {status: http.StatusForbidden, code: "read_only", reason: "The store was opened for reading only."},
	osier.KindUnavailable: {status: http.StatusServiceUnavailable, code: "service_unavailable"},
	osier.KindClosed:      {status: http.StatusServiceUnavailable, code: "service_unavailable", reason: "The server is stopping."},
	osier.KindUnsupported: {status: http.StatusNotImplemented, code: "not_implemented"},
	osier.KindGap:         {status: http.StatusBadRequest, code: "bad_request"},
	osier.KindCanceled:    {status: http.StatusServiceUnavailable, code: "timeout", reason: "The request was given up."},
}

// explain turns any error into an answer.
func explain(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if f := refusedSelector(err); f != nil {
		return f
	}
	var forbidden *server.Forbidden
	if errors.As(err, &forbidden) {
		return &failure{status: http.StatusForbidden, code: "forbidden", reason: forbidden.Reason, cause: err}
	}
	var throttled *server.Throttled
	if errors.As(err, &throttled) {
		return &failure{status: http.StatusTooManyRequests, code: "too_many_requests", reason: throttled.Reason, cause: err}
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &failure{status: http.StatusRequestEntityTooLarge, code: "too_large",
			reason: "the request entity is too large", cause: err}
	}
	out, ok := kinds[osier.KindOf(err)]
	if !ok {
		return &failure{status: http.StatusInternalServerError, code: "internal_server_error", reason: osier.KindOf(err).String(), cause: err}
	}
	out.cause = err
	if out.reason == "" {
		out.reason = reasonOf(err)
	}
	return &out
}

// reasonOf is the innermost detail of an error: what the client can act on.
func reasonOf(err error) string {
	var own *osier.Error
	if errors.As(err, &own) && own.Err != nil {
		return own.Err.Error()
	}
	return err.Error()
}

// fail answers with an error.
func (q *request) fail(err error) {
	f := explain(err)
	if f.status >= 500 && f.cause != nil {
		q.door.host.Log().Error("request failed", "id", server.RequestID(q.r.Context()), "method", q.r.Method, "error", f.cause)
	}
	if q.started {
		// The answer is half sent: only breaking off tells the client.
		panic(http.ErrAbortHandler)
	}
	h := q.w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Range", "Accept-Ranges", "Etag"} {
		h.Del(name)
	}
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	var throttled *server.Throttled
	if errors.As(err, &throttled) {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(throttled.After.Seconds()))))
	} else if f.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
	}
	status := f.status
	if status == http.StatusUnauthorized && wantsHTML(q.r) {
		// A person with a browser is sent to the login form.
		status = http.StatusFound
		h.Set("Location", q.base()+"/_utils/session.html?return="+url.QueryEscape(q.r.URL.EscapedPath())+
			"&reason="+strings.ReplaceAll(url.QueryEscape(f.reason), "+", "%20"))
	}
	q.send(status, f.appendJSON(nil))
}

// retryAfter is what clients are asked to wait when the server is busy.
const retryAfter = 5 * time.Second

func (f *failure) appendJSON(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"error":`...), f.code)
	dst = appendQuoted(append(dst, `,"reason":`...), f.reason)
	return append(dst, '}')
}

func wantsHTML(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/html") && !strings.Contains(accept, "application/json")
}
