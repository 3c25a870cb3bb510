// Package clients holds no code: its tests drive the CouchDB door with clients
// that others wrote, kivik for Go and PouchDB and nano for JavaScript. It is a
// module of its own, so that their dependencies stay out of Osier's.
package clients
