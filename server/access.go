package server

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/osierdb/osier"
)

// securityDoc is a security object as it is stored, under the identity of the
// database that it protects.
type securityDoc struct {
	DB       string          `json:"db"` // for people
	Security json.RawMessage `json:"security"`
}

// securityID is the id of a database's security object.
func securityID(uuid osier.UUID) string { return hex.EncodeToString(uuid[:]) }

// maxHandles bounds the cached handles and security objects.
const maxHandles = 16 << 10

// gates holds what decides who may do what in which database.
type gates struct {
	mu       sync.Mutex // guards what follows
	watching bool
	gen      uint64 // as in accounts
	handles  map[string]*osier.DB
	security map[osier.UUID]*Security // by the database's identity
}

func newGates() *gates {
	return &gates{handles: map[string]*osier.DB{}, security: map[osier.UUID]*Security{}}
}

func (g *gates) setWatching(on bool) {
	g.mu.Lock()
	g.gen++
	if g.watching = on; !on {
		clear(g.security)
	}
	g.mu.Unlock()
}

func (g *gates) forget(uuid osier.UUID) {
	g.mu.Lock()
	g.gen++
	delete(g.security, uuid)
	g.mu.Unlock()
}

// database returns a handle with all rights and the database's identity.
// ErrNotFound if there is none of that name.
func (s *Server) database(ctx context.Context, name string) (*osier.DB, osier.UUID, error) {
	s.gates.mu.Lock()
	db := s.gates.handles[name]
	s.gates.mu.Unlock()
	if db == nil {
		var err error
		if db, err = s.store.OpenDB(ctx, name); err != nil {
			return nil, osier.UUID{}, err
		}
		s.gates.mu.Lock()
		evict(s.gates.handles, maxHandles)
		s.gates.handles[name] = db
		s.gates.mu.Unlock()
	}
	id, err := db.UUID(ctx)
	return db, id, err
}

// securityOf returns the security object of a database.
func (s *Server) securityOf(ctx context.Context, name string, uuid osier.UUID) (*Security, error) {
	s.gates.mu.Lock()
	sec, gen := s.gates.security[uuid], s.gates.gen
	s.gates.mu.Unlock()
	if sec == nil {
		doc, err := securityDocs.Get(ctx, s.sys, securityID(uuid))
		switch {
		case err == nil:
			if sec, err = ParseSecurity(doc.Value.Security); err != nil {
				return nil, err
			}
		case errors.Is(err, osier.ErrNotFound):
			sec = &Security{} // the default, which a setting changes
		default:
			return nil, err
		}
		s.gates.mu.Lock()
		if s.gates.watching && s.gates.gen == gen {
			evict(s.gates.security, maxHandles)
			s.gates.security[uuid] = sec
		}
		s.gates.mu.Unlock()
	}
	if sec.JSON != nil {
		return sec, nil
	}
	if s.live().publicDefault && name[0] != '_' {
		return s.open4all, nil
	}
	return s.closed, nil
}

// session makes the session of a recognised principal, an anonymous one of nil.
func (s *Server) session(id *Identity) *Session {
	sess := &Session{access: (*sessionAccess)(s)}
	if id != nil {
		sess.Name, sess.Roles, sess.Method, sess.Expires = id.Name, id.Roles, id.Method, id.Expires
		if len(id.Grants) > 0 {
			// A bounded key does not administrate the server.
			sess.bounds, sess.ownerAdmin = id.Grants, slices.Contains(id.Roles, RoleAdmin)
			sess.Roles = slices.DeleteFunc(slices.Clone(id.Roles), func(r string) bool { return r == RoleAdmin })
		}
	}
	sess.Store = s.store.Through(func(b osier.Backend) osier.Backend { return &rules{Backend: b, s: s, sess: sess} }).
		As(osier.Principal{Name: sess.Name, Grants: s.wholeGrants(sess)})
	if sess.bounds != nil {
		sess.Store = sess.Store.As(osier.Principal{Name: sess.Name, Grants: sess.bounds})
	}
	return sess
}

// wholeGrants are the rights that a session has without a look at security
// objects.
func (s *Server) wholeGrants(sess *Session) []osier.Grant {
	if sess.Admin() || sess.ownerAdmin {
		return s.all
	}
	var grants []osier.Grant
	for _, role := range sess.Roles {
		grants = append(grants, s.o.RoleGrants[role]...)
	}
	return grants
}

// sessionAccess is the access of sessions, apart from Server's own methods.
type sessionAccess Server

func (a *sessionAccess) open(ctx context.Context, sess *Session, name string) (*Access, error) {
	s := (*Server)(a)
	if name == SystemDB {
		return nil, hidden("open")
	}
	db, uuid, err := s.database(ctx, name)
	if err != nil {
		return nil, err
	}
	sec, err := s.securityOf(ctx, name, uuid)
	if err != nil {
		return nil, err
	}
	grants, acc := s.judge(sess, name, sec)
	if !acc.Member {
		return nil, &osier.Error{Kind: osier.KindDenied, Op: "open", DB: name}
	}
	acc.DB = db.Through(func(b osier.Backend) osier.Backend { return &rules{Backend: b, s: s, sess: sess} }).
		As(osier.Principal{Name: sess.Name, Grants: grants})
	if sess.bounds != nil {
		acc.DB = acc.DB.As(osier.Principal{Name: sess.Name, Grants: sess.bounds})
	}
	return acc, nil
}

// judge computes a session's rights in a database.
func (s *Server) judge(sess *Session, name string, sec *Security) ([]osier.Grant, *Access) {
	acc := &Access{Security: sec}
	grants := s.wholeGrants(sess)
	acc.Admin = sess.Admin() || sess.ownerAdmin || sec.Admins.has(sess.Name, sess.Roles)
	acc.Member = acc.Admin || sec.public() || sec.Members.has(sess.Name, sess.Roles)
	switch {
	case acc.Admin && name != UsersDB:
		grants = append(slices.Clip(grants), osier.Grant{Actions: osier.MayRead | osier.MayWrite | osier.MayManage, DB: name})
	case acc.Member && name != UsersDB:
		grants = append(slices.Clip(grants), osier.Grant{Actions: osier.MayRead | osier.MayWrite, DB: name})
	case name == UsersDB && (acc.Member || sess.Name != "" && s.live().ownDocument):
		// Which documents, the rules for users decide.
		acc.Member = true
		grants = append(slices.Clip(grants), osier.Grant{Actions: osier.MayRead | osier.MayWrite, DB: name, Collection: osier.DefaultCollection})
	}
	if name == UsersDB {
		// A database administrator who is none of the server would read hashes.
		acc.Admin = sess.Admin()
	}
	if !acc.Member {
		acc.Member = touches(grants, name)
	}
	if sess.bounds != nil {
		acc.Member = acc.Member && touches(sess.bounds, name)
		acc.Admin = acc.Admin && osier.Principal{Grants: sess.bounds}.Can(osier.MayManage, osier.Resource{DB: name})
	}
	return grants, acc
}

// touches reports whether grants give any right to read or write in a database
// or a collection of it.
func touches(grants []osier.Grant, db string) bool {
	return slices.ContainsFunc(grants, func(g osier.Grant) bool {
		p := osier.Principal{Grants: []osier.Grant{{Actions: g.Actions, DB: g.DB}}}
		return p.Can(osier.MayRead, osier.Resource{DB: db}) || p.Can(osier.MayWrite, osier.Resource{DB: db})
	})
}

func (a *sessionAccess) databases(ctx context.Context, sess *Session) ([]string, error) {
	s := (*Server)(a)
	names, err := s.store.Databases(ctx)
	if err != nil {
		return nil, err
	}
	visible := names[:0]
	for _, name := range names {
		switch _, err := a.open(ctx, sess, name); osier.KindOf(err) {
		case osier.KindDenied, osier.KindNotFound:
			continue // not for this session, or dropped just now
		default:
			if err != nil {
				return nil, err
			}
		}
		visible = append(visible, name)
	}
	return visible, nil
}

func (a *sessionAccess) setSecurity(ctx context.Context, sess *Session, name string, sec *Security) error {
	s := (*Server)(a)
	acc, err := a.open(ctx, sess, name)
	if err != nil {
		return err
	}
	if !acc.Admin {
		return &osier.Error{Kind: osier.KindDenied, Op: "set security", DB: name}
	}
	_, uuid, err := s.database(ctx, name)
	if err != nil {
		return err
	}
	defer s.gates.forget(uuid)
	_, err = securityDocs.Upsert(ctx, s.sys, securityID(uuid), securityDoc{name, sec.JSON})
	return err
}

// dropped removes the security object of a database that is gone. It could
// not be used any more, so a failure does no harm: it is logged.
func (s *Server) dropped(ctx context.Context, name string) {
	ctx = context.WithoutCancel(ctx)
	for doc, err := range securityDocs.List(ctx, s.sys, nil) {
		if err == nil && doc.Value.DB == name && !s.alive(ctx, name, doc.ID.String()) {
			err = securityDocs.Delete(ctx, s.sys, doc.ID, doc.Rev)
		}
		if err != nil && !errors.Is(err, osier.ErrConflict) && !errors.Is(err, osier.ErrNotFound) {
			s.log.WarnContext(ctx, "remove security object of dropped database", "db", name, "error", err)
		}
	}
}

// alive reports whether there is a database of that name and identity.
func (s *Server) alive(ctx context.Context, name, uuid string) bool {
	_, now, err := s.database(ctx, name)
	return err != nil && !errors.Is(err, osier.ErrNotFound) || err == nil && securityID(now) == uuid
}
