package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// corsRules say which other origins may call the server.
type corsRules struct {
	on, any, credentials    bool
	origins                 map[string]bool
	anyPort                 []string // "http://localhost:"
	methods, expose, maxAge string
	methodSet, headerSet    map[string]bool
	allHeaders              bool
}

func newCORSRules(on bool, get func(string) string) corsRules {
	c := corsRules{on: on, credentials: get("cors.credentials") == "true", methods: get("cors.methods"), expose: get("cors.expose"),
		maxAge: get("cors.max_age"), origins: map[string]bool{}, methodSet: map[string]bool{}, headerSet: map[string]bool{}}
	for _, o := range splitList(get("cors.origins")) {
		if prefix, ok := strings.CutSuffix(o, ":*"); ok {
			c.anyPort = append(c.anyPort, prefix+":")
			continue
		}
		c.any = c.any || o == "*"
		c.origins[o] = true
	}
	for _, m := range splitList(c.methods) {
		c.methodSet[m] = true
	}
	// What a browser may send to anybody needs no permission.
	for _, h := range append(splitList(get("cors.headers")), "accept", "accept-language", "content-language", "content-type") {
		c.allHeaders = c.allHeaders || h == "*"
		c.headerSet[strings.ToLower(h)] = true
	}
	return c
}

// allows reports whether an origin may call.
func (c *corsRules) allows(origin string) bool {
	return c.any || c.origins[origin] || slices.ContainsFunc(c.anyPort, func(p string) bool {
		port, ok := strings.CutPrefix(origin, p)
		return ok && port != "" && strings.Trim(port, "0123456789") == ""
	})
}

// refusedHeader tells a developer who looks into the network panel why the
// browser did not show him the answer.
const refusedHeader = "X-Cors-Refused"

// apply sets the headers that browsers want. It reports true if it has
// answered the request, a preflight, wholly.
func (c *corsRules) apply(w http.ResponseWriter, r *http.Request) (done bool) {
	origin := r.Header.Get("Origin")
	if !c.on || origin == "" || sameOrigin(r, origin) {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	if !c.allows(origin) {
		h.Set(refusedHeader, fmt.Sprintf("%+.200q is not in the setting cors.origins", origin))
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" || !c.preflight(h, method, r.Header.Get("Access-Control-Request-Headers")) {
		h.Set("Access-Control-Expose-Headers", c.expose)
		return false
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// preflight answers whether a request of that method with those headers may
// be sent. A refused one is answered as what it is without CORS, an OPTIONS
// request, with the reason in a header.
func (c *corsRules) preflight(h http.Header, method, headers string) bool {
	if !c.methodSet[method] {
		h.Set(refusedHeader, fmt.Sprintf("method %+.40q is not in the setting cors.methods", method))
		return false
	}
	for _, name := range splitList(headers) {
		if !c.allHeaders && !c.headerSet[strings.ToLower(name)] {
			h.Set(refusedHeader, fmt.Sprintf("header %+.80q is not in the setting cors.headers", name))
			return false
		}
	}
	h.Set("Access-Control-Allow-Methods", c.methods)
	h["Access-Control-Allow-Headers"] = []string{headers}
	h.Set("Access-Control-Max-Age", c.maxAge)
	h.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	return true
}

// sameOrigin reports whether a request comes from a page of this server.
func sameOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// forged reports whether a request that changes something comes, with a
// cookie, from a page of an origin that may not call: the cookie was sent by
// the browser then, not by its user.
func (c *corsRules) forged(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	origin := r.Header.Get("Origin")
	return origin != "" && !sameOrigin(r, origin) && !(c.on && c.credentials && c.allows(origin))
}
