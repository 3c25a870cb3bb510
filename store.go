package osier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Store is an opened set of databases, wherever they live.
type Store struct {
	backend Backend
	codecs  Codecs
	clock   func() time.Time
	ids     *IDSource
	scratch *sync.Pool // of *Document
}

// StoreOptions for NewStore. The zero value is useful.
type StoreOptions struct {
	Codecs Codecs           // nil: JSON, Binary and Pot
	Clock  func() time.Time // nil: time.Now; used for ids made inside transactions
}

// NewStore returns the handle over a backend. Packages that make backends call
// it; programs get a Store from them.
func NewStore(b Backend, o *StoreOptions) *Store {
	s := &Store{backend: b, codecs: NewCodecs(), clock: time.Now, ids: new(IDSource),
		scratch: &sync.Pool{New: func() any { return new(Document) }}}
	if o != nil {
		if o.Codecs != nil {
			s.codecs = o.Codecs
		}
		if o.Clock != nil {
			s.clock = o.Clock
		}
	}
	return s
}

// SchemaItem is something declared in code that a database has to know: a
// Collection or a View.
type SchemaItem interface{ declare() *Op }

// DBOption changes what DB, CreateDB and OpenDB do.
type DBOption func(*dbOptions)

type dbOptions struct{ items []SchemaItem }

// Schema makes collections and views known to the database. Collections are
// created, or their settings brought to what the code says, before the handle is
// returned; the functions of views must be made known each time the store is
// opened, and field views are defined once.
// Collections that are not declared are created with default settings by their
// first write.
func Schema(items ...SchemaItem) DBOption {
	return func(o *dbOptions) { o.items = append(o.items, items...) }
}

// MaxNameBytes bounds the names of databases and collections.
const MaxNameBytes = 238

// CheckDBName applies CouchDB's rule for database names: a lower-case letter
// first, then lower-case letters, digits and _ $ ( ) + - / only; names that
// begin with "_" are kept for system databases.
func CheckDBName(name string) error {
	if len(name) > MaxNameBytes {
		return &Error{Kind: KindInvalid, Op: "name database", Err: fmt.Errorf("name of %d bytes, at most %d are allowed", len(name), MaxNameBytes)}
	}
	rest := name
	if rest != "" && rest[0] == '_' {
		rest = rest[1:]
	}
	ok := rest != "" && rest[0] >= 'a' && rest[0] <= 'z'
	for i := 0; ok && i < len(rest); i++ {
		c := rest[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' ||
			c == '_' || c == '$' || c == '(' || c == ')' || c == '+' || c == '-' || c == '/'
	}
	if !ok {
		return &Error{Kind: KindInvalid, Op: "name database", DB: name, Err: errors.New(
			"only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed; must begin with a letter")}
	}
	return nil
}

// CheckCollectionName wants letters, digits, "_", "-", "." or "$", at least
// one, of any case.
func CheckCollectionName(name string) error {
	ok := name != "" && len(name) <= MaxNameBytes
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '_' || c == '-' || c == '.' || c == '$'
	}
	if !ok {
		return &Error{Kind: KindInvalid, Op: "name collection", Collection: name, ID: name,
			Err: fmt.Errorf("want 1 to %d letters, digits or any of _ - . $", MaxNameBytes)}
	}
	return nil
}

// CreateDB creates a database; ErrExists if there is one of that name,
// ErrInvalid for a name against CheckDBName's rule.
func (s *Store) CreateDB(ctx context.Context, name string, opts ...DBOption) (*DB, error) {
	if err := CheckDBName(name); err != nil {
		return nil, err
	}
	if _, err := s.backend.Exec(ctx, &Command{DB: name, Ops: []Op{{Kind: OpCreateDB}}}); err != nil {
		return nil, err
	}
	return s.prepare(ctx, name, opts)
}

// OpenDB returns a database that exists; ErrNotFound otherwise.
func (s *Store) OpenDB(ctx context.Context, name string, opts ...DBOption) (*DB, error) {
	db := s.handle(name)
	if _, err := db.Info(ctx); err != nil {
		return nil, err
	}
	return s.prepare(ctx, name, opts)
}

// DB returns a database, creating it if need be.
func (s *Store) DB(ctx context.Context, name string, opts ...DBOption) (*DB, error) {
	db, err := s.OpenDB(ctx, name, opts...)
	if !errors.Is(err, ErrNotFound) {
		return db, err
	}
	db, err = s.CreateDB(ctx, name, opts...)
	if errors.Is(err, ErrExists) {
		// Somebody else was faster, which is as good.
		return s.OpenDB(ctx, name, opts...)
	}
	return db, err
}

// DropDB deletes a database and all in it. Its space comes back by itself.
func (s *Store) DropDB(ctx context.Context, name string) error {
	_, err := s.backend.Exec(ctx, &Command{DB: name, Ops: []Op{{Kind: OpDropDB}}})
	return err
}

// Databases lists the names of all databases in order.
func (s *Store) Databases(ctx context.Context) ([]string, error) {
	var names []string
	for row, err := range s.backend.Query(ctx, &Query{Kind: QueryDatabases}) {
		if err != nil {
			return nil, err
		}
		names = append(names, row.DB.Name)
	}
	return names, nil
}

// Close closes the backend after what is under way. It is idempotent.
func (s *Store) Close() error { return s.backend.Close() }

func (s *Store) handle(name string) *DB { return &DB{store: s, backend: s.backend, name: name} }

func (s *Store) prepare(ctx context.Context, name string, opts []DBOption) (*DB, error) {
	var o dbOptions
	for _, f := range opts {
		f(&o)
	}
	db := s.handle(name)
	if len(o.items) == 0 {
		return db, nil
	}
	if err := db.declare(ctx, o.items); err != nil {
		return nil, err
	}
	for _, item := range o.items {
		if v, ok := item.(installer); ok {
			if err := v.install(ctx, db); err != nil {
				return nil, err
			}
		}
	}
	return db, nil
}

// installer is an item that a database learns of by itself.
type installer interface {
	install(ctx context.Context, db *DB) error
}

// declare brings collections to what the code says.
func (db *DB) declare(ctx context.Context, items []SchemaItem) error {
	info, err := db.Info(ctx)
	if err != nil {
		return err
	}
	var c Command
	for _, item := range items {
		op := item.declare()
		if op == nil {
			continue
		}
		if err := CheckCollectionName(op.Collection); err != nil {
			return err
		}
		if have := info.collection(op.Collection); have == nil || have.Settings != *op.Settings {
			if have != nil && have.Settings.Schema > op.Settings.Schema {
				return &Error{Kind: KindUnsupported, Op: "open", DB: db.name, Collection: op.Collection, Err: fmt.Errorf(
					"schema version %d is stored, this program knows %d: run a newer program", have.Settings.Schema, op.Settings.Schema)}
			}
			c.Ops = append(c.Ops, *op)
		}
	}
	if len(c.Ops) == 0 {
		return nil
	}
	c.DB = db.name
	if _, err := db.backend.Exec(ctx, &c); err != nil {
		return err
	}
	return nil
}

func (i *DBInfo) collection(name string) *CollectionInfo {
	for k := range i.Collections {
		if i.Collections[k].Name == name {
			return &i.Collections[k]
		}
	}
	return nil
}
