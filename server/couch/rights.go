package couch

import (
	"strings"

	"github.com/osierdb/osier/server"
)

// usersDB reports whether the request is about the users' database.
func (q *request) usersDB() bool { return q.db != nil && q.db.Name() == server.UsersDB }

// mayReadDoc refuses what only administrators may read.
func (q *request) mayReadDoc(id string) error {
	if q.usersDB() && strings.HasPrefix(id, designPrefix) && !q.s.Admin() {
		return q.denied("Only administrators can view design docs in the users database.", "You are not a server admin.")
	}
	return nil
}

// mayWriteDoc refuses documents that the principal may not write, and design
// documents that are none.
func (q *request) mayWriteDoc(in *incoming) error {
	if err := q.needDesignRight(in.id); err != nil {
		return err
	}
	if q.db.Name() == replicatorDB && !isDesign(in.id) && !in.deleted {
		return errNoReplicator
	}
	if isDesign(in.id) && !in.deleted {
		return checkDesign(in.body)
	}
	return nil
}
