// Package couch is the CouchDB door: CouchDB's HTTP interface over Osier's
// databases, so that PouchDB, replicators, client libraries and curl talk to
// Osier as they talk to CouchDB.
//
// A CouchDB database is the default collection of the Osier database of that
// name; DB:COLLECTION in a path reaches another collection. Documents are
// stored as CouchDB would show them: compact JSON in the client's order of
// members, with numbers and strings rewritten as CouchDB rewrites them, so that
// revisions are the ones that CouchDB would give.
//
// docs/couchdb.md lists every difference from CouchDB.
package couch
