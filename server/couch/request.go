package couch

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/server"
)

// request is one being answered. It belongs to its goroutine.
type request struct {
	door    *Door
	w       http.ResponseWriter
	r       *http.Request
	s       *server.Session
	method  string
	path    []string // decoded segments, without empty ones
	params  params
	began   time.Time
	started bool // the status line is out
	turn    bool // of door.turns

	// Set by open.
	dbName string // as the client wrote it
	coll   string
	access *server.Access
	db     *osier.DB
	info   *osier.DBInfo // of the collection; see dbInfo
}

// serverHeader is what clients parse the version from.
func (d *Door) serverHeader() string {
	return "CouchDB/" + couchVersion + " (Osier/" + d.host.Instance().Version + ")"
}

// couchVersion is the CouchDB whose behaviour is followed.
const couchVersion = "3.5.0"

// ServeHTTP answers a request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := &request{door: d, w: w, r: r, s: server.SessionOf(r.Context()), method: r.Method, began: time.Now()}
	if r.Method == http.MethodPost {
		if m := r.Header.Get("X-HTTP-Method-Override"); overridable[m] {
			q.method = m
		}
	}
	// Set would allocate for each of these on every request.
	h := w.Header()
	h["Server"] = d.server
	if !strings.EqualFold(r.Header.Get("Prefer"), "return=minimal") {
		h["X-Couch-Request-Id"] = []string{requestID(r)}
		h["X-Couchdb-Body-Time"] = bodyTime
	}
	h["Cache-Control"] = mustRevalidate
	q.path = segments(r.URL.EscapedPath())
	q.params = parseParams(r.URL.RawQuery)
	defer q.pause()
	if err := q.route(); err != nil {
		q.fail(err)
	}
}

// Values of headers that are shared by all answers; who adds to one gets a copy.
var (
	jsonType       = []string{"application/json"}
	mustRevalidate = []string{"must-revalidate"}
	bodyTime       = []string{"0"}
)

// overridable are the methods that a POST may stand for.
var overridable = map[string]bool{
	http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true,
	http.MethodDelete: true, "COPY": true,
}

// requestID is the client's, if it sent one, or ten hexadecimal digits.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Couch-Request-Id"); id != "" && len(id) <= 64 && strings.Trim(id, idLetters) == "" {
		return id
	}
	id := server.RequestID(r.Context())
	return id[:min(10, len(id))]
}

// idLetters are those of a client's own request id.
const idLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// segments splits a path as it was sent and decodes its parts, in which a plus
// is a space. Empty ones do not count.
func segments(path string) []string {
	parts := strings.Split(path, "/")
	out := parts[:0]
	for _, p := range parts {
		if p != "" {
			out = append(out, unescape(p))
		}
	}
	return out
}

// unescape decodes percent and plus; what is no escape stays as it is.
func unescape(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			b = append(b, ' ')
		case s[i] == '%' && i+2 < len(s):
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil || s[i+1] == '+' {
				b = append(b, '%')
				continue
			}
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return string(b)
}

// escape encodes a path segment as CouchDB writes it in Location.
func escape(s string) string {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~:", c) >= 0:
			b = append(b, c)
		default:
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

// base is the server's address as the client sees it.
func (q *request) base() string {
	scheme := "http"
	if q.r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + q.r.Host
}

// location is the address of a document or attachment of the request's database.
func (q *request) location(parts ...string) string {
	out := q.base() + "/" + escape(q.dbName)
	for _, p := range parts {
		out += "/" + escape(p)
	}
	return out
}

// params are the parameters of a query, in order; of a repeated one the first
// counts.
type params []param

type param struct{ name, value string }

func parseParams(raw string) params {
	if raw == "" {
		return nil
	}
	var out params
	for part := range strings.FieldsFuncSeq(raw, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		out = append(out, param{unescape(name), unescape(value)})
	}
	return out
}

// get returns a parameter's value.
func (p params) get(name string) (string, bool) {
	for i := range p {
		if p[i].name == name {
			return p[i].value, true
		}
	}
	return "", false
}

// is reports whether a flag is on. As with CouchDB, a document's flags take
// whatever is no boolean as off.
func (p params) is(name string) bool {
	v, _ := p.get(name)
	return v == "true"
}

// send writes a JSON answer with its line end.
func (q *request) send(status int, body []byte) {
	body = append(body, '\n')
	h := q.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	q.started = true
	q.w.WriteHeader(status)
	// A client that has gone needs no answer.
	_, _ = q.w.Write(body)
}

// ok is the answer to what needs no other.
func (q *request) ok(status int) error {
	q.send(status, []byte(`{"ok":true}`))
	return nil
}

// allow refuses other methods than those listed, in CouchDB's order. HEAD goes
// with GET.
func (q *request) allow(methods string) error {
	for m := range strings.SplitSeq(methods, ",") {
		if m == q.method || m == http.MethodGet && q.method == http.MethodHead {
			return nil
		}
	}
	return methodNotAllowed(methods)
}

// wantJSON refuses bodies of other types than JSON.
func (q *request) wantJSON() error {
	t, _, _ := strings.Cut(q.r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(t), "application/json") {
		return errJSONType
	}
	return nil
}

// input returns the request's body, decompressed if need be.
func (q *request) input() (io.ReadCloser, error) {
	encoding := q.r.Header.Get("Content-Encoding")
	in, err := decoded(q.r.Body, encoding, q.door.host.Limits().Body)
	if errors.Is(err, errEncoding) {
		err = unsupportedType(encoding + " is not a supported content encoding.")
	}
	return in, err
}

// decoded undoes a content encoding. What comes out is bounded, as what goes
// in is: a small body must not become a large one.
func decoded(r io.ReadCloser, encoding string, limit int64) (io.ReadCloser, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return r, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, errGzip
		}
		return &bounded{z, r, limit}, nil
	}
	return nil, errEncoding
}

// bounded ends with an error beyond its limit.
type bounded struct {
	io.Reader
	under io.Closer
	left  int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &http.MaxBytesError{}
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errGzip
	}
	return n, err
}

func (b *bounded) Close() error { return b.under.Close() }

// body reads the whole body; limits on it are the server's.
func (q *request) body() ([]byte, error) {
	in, err := q.input()
	if err != nil {
		return nil, err
	}
	return readAll(in, q.r.ContentLength, nil)
}

// text hands the whole body to parse, which must not keep it: its memory is
// used again.
func (q *request) text(parse func(text []byte) error) error {
	in, err := q.input()
	if err != nil {
		return err
	}
	b := borrow()
	defer giveBack(b)
	if *b, err = readAll(in, q.r.ContentLength, *b); err != nil {
		return err
	}
	return parse(*b)
}

// readAll reads r, whose length is size if that is positive, into buf, or what
// takes its place if it is too small.
func readAll(r io.Reader, size int64, buf []byte) ([]byte, error) {
	const most = 1 << 20 // to allocate on a mere promise
	if want := int(min(max(size, 0), most)) + 512; cap(buf) < want {
		buf = make([]byte, 0, want)
	}
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
	}
}

// depth is how deep a request's JSON may nest.
func (q *request) depth() int { return min(q.door.host.Limits().Depth, maxDepth) }

// jsonBody reads a JSON body in canonical form.
func (q *request) jsonBody() ([]byte, error) {
	var out []byte
	err := q.text(func(text []byte) (err error) {
		out, err = parseJSON(text, q.depth())
		return err
	})
	return out, err
}

func parseJSON(b []byte, most int) ([]byte, error) {
	out, err := canonical(make([]byte, 0, len(b)), b, most)
	if err != nil {
		return nil, errBadJSON
	}
	return out, nil
}

// object reads a body that must be a JSON object of the JSON type, and returns
// the values of the members named.
func (q *request) object(names ...string) (map[string][]byte, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	b, err := q.jsonBody()
	if err != nil {
		return nil, err
	}
	return members(b, names...)
}

// members returns the values of an object's members that are named.
func members(b []byte, names ...string) (map[string][]byte, error) {
	out := make(map[string][]byte, len(names))
	ok, err := fields(b, func(name, value []byte) error {
		n, _ := unquote(name)
		for _, want := range names {
			if n == want {
				out[n] = value
			}
		}
		return nil
	})
	if !ok {
		return nil, errBodyObject
	}
	return out, err
}

// accepts reports whether the client takes answers of the type major/minor.
func accepts(r *http.Request, major, minor string) bool {
	header := strings.Join(r.Header.Values("Accept"), ",")
	if header == "" {
		return true
	}
	for part := range strings.SplitSeq(header, ",") {
		t, args, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		if w, err := strconv.ParseFloat(args["q"], 64); err == nil && w <= 0 {
			continue
		}
		a, b, _ := strings.Cut(t, "/")
		if (a == "*" || a == major) && (b == "*" || b == minor) {
			return true
		}
	}
	return false
}

// matches reports whether the client has the version that etag names: only
// quoted tags count, as with CouchDB.
func (q *request) matches(etag string) bool {
	for part := range strings.SplitSeq(q.r.Header.Get("If-None-Match"), ",") {
		if strings.TrimPrefix(strings.TrimSpace(part), "W/") == etag {
			return true
		}
	}
	return false
}

// notModified answers 304 if the client has that version.
func (q *request) notModified(etag string) bool {
	q.w.Header().Set("Etag", etag)
	if (q.method != http.MethodGet && q.method != http.MethodHead) || !q.matches(etag) {
		return false
	}
	q.started = true
	q.w.WriteHeader(http.StatusNotModified)
	return true
}

// docID makes a document id; a text that is none says why.
func docID(text string) (osier.ID, error) {
	if text == "" {
		return osier.ID{}, illegalID("Document id must not be empty")
	}
	if !utf8.ValidString(text) {
		return osier.ID{}, illegalID("Document id must be valid UTF-8")
	}
	id, err := osier.IDOf(text)
	if err != nil {
		return id, illegalID(reasonOf(err))
	}
	return id, nil
}

// checkID applies CouchDB's rule for the ids of documents that are written.
func checkID(text string) error {
	if strings.HasPrefix(text, "_") && !isDesign(text) {
		return errReserved
	}
	return nil
}

const (
	designPrefix = "_design/"
	localPrefix  = "_local/"
)

func isDesign(id string) bool {
	return len(id) > len(designPrefix) && strings.HasPrefix(id, designPrefix)
}

func isLocal(id string) bool { return strings.HasPrefix(id, localPrefix) }

// idText is an id as CouchDB's clients see it: a text as it is, others in the
// form for people.
func idText(id osier.ID) string { return id.String() }
