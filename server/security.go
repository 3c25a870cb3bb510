package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/osierdb/osier"
)

// maxSecurityBytes bounds a security object.
const maxSecurityBytes = 1 << 20

// closedSecurity is the security object of a database that has none.
const closedSecurity = `{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`

// ParseSecurity reads a security object: a JSON object whose members admins
// and members, if they are there, are objects with lists of strings called
// names and roles. ErrInvalid for other forms, ErrTooLarge above 1 MiB.
func ParseSecurity(text []byte) (*Security, error) {
	refuse := func(kind osier.Kind, err error) (*Security, error) {
		return nil, &osier.Error{Kind: kind, Op: "read security object", Err: err}
	}
	if len(text) > maxSecurityBytes {
		return refuse(osier.KindTooLarge, fmt.Errorf("%d bytes, at most %d are allowed", len(text), maxSecurityBytes))
	}
	if t := bytes.TrimSpace(text); len(t) == 0 || t[0] != '{' {
		return refuse(osier.KindInvalid, errors.New("want a JSON object"))
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return refuse(osier.KindInvalid, err)
	}
	s := &Security{JSON: slices.Clone(text)}
	for name, p := range map[string]*Principals{"admins": &s.Admins, "members": &s.Members} {
		if err := p.read(name, parts[name]); err != nil {
			return refuse(osier.KindInvalid, err)
		}
	}
	return s, nil
}

// read takes p from the member of that name; without one it is nobody. Names
// count letter by letter: a struct would take "Members" for "members".
func (p *Principals) read(name string, text json.RawMessage) error {
	if absent(text) {
		return nil
	}
	var lists map[string]json.RawMessage
	if json.Unmarshal(text, &lists) != nil {
		return errors.New(name + " must be a JSON object")
	}
	for list, into := range map[string]*[]string{"names": &p.Names, "roles": &p.Roles} {
		if text := lists[list]; !absent(text) && json.Unmarshal(text, into) != nil {
			return errors.New(list + " of " + name + " must be a JSON list of strings")
		}
	}
	return nil
}

// absent reports whether a member is not there, or null.
func absent(text json.RawMessage) bool { return text == nil || string(text) == "null" }

// none reports whether p names nobody.
func (p *Principals) none() bool { return len(p.Names) == 0 && len(p.Roles) == 0 }

// has reports whether a principal is among p.
func (p *Principals) has(name string, roles []string) bool {
	return name != "" && slices.Contains(p.Names, name) ||
		slices.ContainsFunc(p.Roles, func(r string) bool { return slices.Contains(roles, r) })
}

// public reports whether everybody is a member.
func (s *Security) public() bool { return s.Members.none() }
