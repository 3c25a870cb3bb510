package engine

import (
	"github.com/osierdb/osier/internal/kv"
)

// keyValues checks the database's key-values. Whatever cannot be read is
// reported, and the rest is gone through.
func (c *checker) keyValues() error {
	base := &kvBase{src: c.src, db: c.db.num}
	out, err := kv.Verify(base, func(namespace, key string, err error) error {
		p := Problem{DB: c.db.name, ID: key, Offset: -1, Err: err}
		if namespace != "" {
			p.Collection = "kv:" + namespace
		}
		c.problem(p)
		return c.ctx.Err()
	})
	c.out.Keys += out.Keys
	c.out.Elements += out.Elements
	c.out.Bytes += out.Bytes
	return err
}

// keyValues mends the database's key-values.
func (m *mender) keyValues() error {
	s := kv.NewSpace(&kvBase{src: m.src, db: m.num}, 0)
	err := kv.Mend(s, func(namespace, key string, err error) {
		p := Problem{DB: m.name, ID: key, Offset: -1, Err: err}
		if namespace != "" {
			p.Collection = "kv:" + namespace
		}
		m.lost(p)
	})
	if err != nil {
		return err
	}
	row := func(key []byte) []byte { return append(kvRow(nil, m.num), key...) }
	return s.Rows.Flush(
		func(key, value []byte) error { return m.w.set(row(key), value) },
		func(key []byte) error { return m.w.delete(row(key)) },
		func(lo, hi []byte) error { return m.w.deleteRange(row(lo), row(hi)) },
	)
}
