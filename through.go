package osier

// Through returns a handle whose requests pass through wrap's Backend, which
// may judge, change or watch them before it hands them on. A guard that s has
// already (see As) lies below it, one that is put on the result above it.
func (s *Store) Through(wrap func(Backend) Backend) *Store {
	c := *s
	c.backend = wrap(s.backend)
	return &c
}

// Through returns a handle whose requests pass through wrap's Backend; see
// Store.Through.
func (db *DB) Through(wrap func(Backend) Backend) *DB {
	c := *db
	c.backend = wrap(db.backend)
	return &c
}
