package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

// kvCmd works on key-values. Everything it writes is synced before it says so.
type kvCmd struct {
	Get  kvGetCmd  `cmd:"" help:"Show what is under a key, of any type."`
	Set  kvSetCmd  `cmd:"" help:"Write a value."`
	Rm   kvRmCmd   `cmd:"" help:"Delete keys."`
	List kvListCmd `cmd:"" help:"List keys, or without a namespace the namespaces."`
	Incr kvIncrCmd `cmd:"" help:"Add to a number."`
	TTL  kvTTLCmd  `cmd:"" name:"ttl" help:"Show or set how long a key lives."`
}

// space is an argument DB:NAMESPACE.
type space struct{ db, namespace string }

// UnmarshalText reads an argument; kong calls it.
func (s *space) UnmarshalText(b []byte) error {
	var named bool
	s.db, s.namespace, named = strings.Cut(string(b), ":")
	if err := osier.CheckDBName(s.db); err != nil {
		return err
	}
	if !named {
		return nil
	}
	return osier.CheckKVName(s.namespace)
}

func (s space) with(e *env, a access, fn func(context.Context, osier.Namespace) error) error {
	if s.namespace == "" {
		return usagef("name a namespace: %s:NAMESPACE", s.db)
	}
	return e.withDB(a, target{db: s.db}, func(ctx context.Context, db *osier.DB) error {
		return fn(ctx, db.KV(s.namespace).With(osier.Sync))
	})
}

// kvJSON is a key in JSON output. Bytes that are no text are base64.
type kvJSON struct {
	Key     string       `json:"key"`
	Type    string       `json:"type"`
	Version uint64       `json:"version"`
	Expires string       `json:"expires,omitempty"`
	Value   *string      `json:"value,omitempty"`
	Base64  string       `json:"base64,omitempty"`
	Items   []kvItemJSON `json:"items,omitempty"`
}

type kvItemJSON struct {
	Name  string   `json:"name,omitempty"`
	Value *string  `json:"value,omitempty"`
	Score *float64 `json:"score,omitempty"`
}

func kvTypeName(t osier.KVType) string {
	return map[osier.KVType]string{osier.KVPlain: "value", osier.KVLists: "list", osier.KVHashes: "hash", osier.KVSets: "set",
		osier.KVSorteds: "sorted set", osier.KVLeases: "lease"}[t]
}

func describeKV(key string, m osier.KVMeta, value []byte) kvJSON {
	j := kvJSON{Key: key, Type: kvTypeName(m.Type), Version: m.Version}
	if m.Deadline != 0 {
		j.Expires = rfc3339(m.Expires())
	}
	if m.Found() {
		if text := string(value); utf8.ValidString(text) {
			j.Value = &text
		} else {
			j.Base64 = base64.StdEncoding.EncodeToString(value)
		}
	}
	return j
}

type kvGetCmd struct {
	Space space  `arg:"" name:"db:namespace" help:"The namespace."`
	Key   string `arg:"" help:"The key."`
}

// Run shows a key. A plain value is written as it is.
func (c *kvGetCmd) Run(e *env) error {
	return c.Space.with(e, reading, func(ctx context.Context, n osier.Namespace) error {
		value, m, err := n.Append(ctx, nil, c.Key)
		if err != nil {
			return err
		}
		if m.Type == osier.KVNone {
			return &exitError{exitMissing, fmt.Errorf("there is no key %s", oneLine(c.Key))}
		}
		items, err := kvItems(ctx, n, c.Key, m.Type)
		if err != nil {
			return err
		}
		if e.json {
			j := describeKV(c.Key, m, value)
			for _, it := range items {
				ij := kvItemJSON{Name: it.Name}
				if it.Value != nil {
					text := string(it.Value)
					ij.Value = &text
				}
				if m.Type == osier.KVSorteds {
					ij.Score = &it.Score
				}
				j.Items = append(j.Items, ij)
			}
			return e.printJSON(j)
		}
		if m.Found() {
			_, err := fmt.Fprintf(e.stdout, "%s\n", value)
			return err
		}
		return c.print(e, m, items)
	})
}

func (c *kvGetCmd) print(e *env, m osier.KVMeta, items []osier.KVItem) error {
	t := e.table("NAME", "VALUE")
	for i, it := range items {
		name, value := it.Name, string(it.Value)
		switch m.Type {
		case osier.KVLists:
			name = strconv.Itoa(i)
		case osier.KVSorteds:
			value = strconv.FormatFloat(it.Score, 'g', -1, 64)
		}
		if err := t.row(name, value); err != nil {
			return err
		}
	}
	return t.flush()
}

// kvItems reads a structure's elements.
func kvItems(ctx context.Context, n osier.Namespace, key string, typ osier.KVType) (out []osier.KVItem, err error) {
	switch typ {
	case osier.KVLists:
		values, err := n.List(key).Range(ctx, 0, -1)
		for _, v := range values {
			out = append(out, osier.KVItem{Value: v})
		}
		return out, err
	case osier.KVHashes:
		for it, err := range n.Hash(key).All(ctx) {
			if err != nil {
				return out, err
			}
			out = append(out, osier.KVItem{Name: it.Name, Value: append([]byte{}, it.Value...)})
		}
	case osier.KVSets:
		for name, err := range n.Members(key).All(ctx) {
			if err != nil {
				return out, err
			}
			out = append(out, osier.KVItem{Name: name})
		}
	case osier.KVSorteds:
		for it, err := range n.Sorted(key).Range(ctx, osier.KVRange{From: 0, To: -1}) {
			if err != nil {
				return out, err
			}
			out = append(out, osier.KVItem{Name: it.Name, Score: it.Score})
		}
	}
	return out, nil
}

type kvSetCmd struct {
	Space     space         `arg:"" name:"db:namespace" help:"The namespace; it is made if need be."`
	Key       string        `arg:"" help:"The key."`
	Value     string        `arg:"" help:"The value, or - for standard input."`
	TTL       time.Duration `name:"ttl" placeholder:"1h30m" help:"How long it lives; without, for ever."`
	IfVacant  bool          `xor:"if" help:"Only if there is no such key."`
	IfPresent bool          `xor:"if" help:"Only if there is one."`
	IfVersion *uint64       `xor:"if" placeholder:"N" help:"Only if it is at that version (0: vacant)."`
}

// Run writes a value.
func (c *kvSetCmd) Run(e *env) error {
	value := []byte(c.Value)
	if c.Value == "-" {
		var err error
		if value, err = e.readBody("-"); err != nil {
			return err
		}
	}
	o := osier.KVSetOptions{For: c.TTL}
	switch {
	case c.IfVacant:
		o.If = osier.IfVacant
	case c.IfPresent:
		o.If = osier.IfPresent
	case c.IfVersion != nil:
		o.If, o.Version = osier.IfVersion, *c.IfVersion
	}
	return c.Space.with(e, changing, func(ctx context.Context, n osier.Namespace) error {
		done, err := n.Put(ctx, c.Key, value, o)
		if err != nil {
			return kvFailed(err)
		}
		if e.json {
			return e.printJSON(describeKV(c.Key, done.KVMeta, value))
		}
		return nil
	})
}

// kvFailed gives a conflict its exit code.
func kvFailed(err error) error {
	if errors.Is(err, osier.ErrConflict) {
		return &exitError{exitConflict, err}
	}
	return err
}

type kvRmCmd struct {
	Space space    `arg:"" name:"db:namespace" help:"The namespace."`
	Keys  []string `arg:"" name:"key" help:"The keys."`
}

// Run deletes keys.
func (c *kvRmCmd) Run(e *env) error {
	return c.Space.with(e, changing, func(ctx context.Context, n osier.Namespace) error {
		gone, err := n.DeleteMany(ctx, c.Keys...)
		switch {
		case err != nil:
			return err
		case gone == 0:
			return &exitError{exitMissing, errors.New("there are no such keys")}
		case e.json:
			return e.printJSON(map[string]int{"deleted": gone})
		}
		_, err = fmt.Fprintf(e.stdout, "deleted %s\n", e.counted(uint64(gone), "key"))
		return err
	})
}

type kvListCmd struct {
	Space   space  `arg:"" name:"db[:namespace]" help:"The namespace, or a database to list its namespaces."`
	Prefix  string `help:"Only keys that begin so."`
	From    string `help:"From that key on."`
	Until   string `help:"Up to, but without, that key."`
	Reverse bool   `help:"From the last one."`
	Limit   int    `help:"At most so many."`
}

// Run lists keys with their values, or namespaces with their numbers of keys.
func (c *kvListCmd) Run(e *env) error {
	if c.Space.namespace == "" {
		return c.namespaces(e)
	}
	return c.Space.with(e, reading, func(ctx context.Context, n osier.Namespace) error {
		t := e.table("KEY", "TYPE", "VALUE")
		t.cut = true
		for k, err := range n.Scan(ctx, &osier.KVScan{Prefix: c.Prefix, From: c.From, Until: c.Until, Reverse: c.Reverse, Limit: c.Limit}) {
			if err != nil {
				return errors.Join(t.flush(), err)
			}
			if e.json {
				err = e.printJSON(describeKV(k.Key, k.KVMeta, k.Value))
			} else {
				err = t.row(k.Key, kvTypeName(k.Type), string(k.Value))
			}
			if err != nil {
				return err
			}
		}
		return t.flush()
	})
}

func (c *kvListCmd) namespaces(e *env) error {
	return e.withDB(reading, target{db: c.Space.db}, func(ctx context.Context, db *osier.DB) error {
		all, err := db.Namespaces(ctx)
		if err != nil {
			return err
		}
		t := e.table("NAMESPACE", ">KEYS")
		for _, n := range all {
			if e.json {
				err = e.printJSON(map[string]any{"namespace": n.Name, "keys": n.Keys})
			} else {
				err = t.row(n.Name, e.count(n.Keys))
			}
			if err != nil {
				return err
			}
		}
		return t.flush()
	})
}

type kvIncrCmd struct {
	Space space  `arg:"" name:"db:namespace" help:"The namespace; it is made if need be."`
	Key   string `arg:"" help:"The key; a vacant one counts as 0."`
	By    string `arg:"" optional:"" default:"1" help:"What is added, a whole or decimal number (default 1)."`
}

// Run adds to a number and shows the sum.
func (c *kvIncrCmd) Run(e *env) error {
	whole, notWhole := strconv.ParseInt(c.By, 10, 64)
	decimal, err := strconv.ParseFloat(c.By, 64)
	if err != nil && notWhole != nil {
		return usagef("%s is no number", oneLine(c.By))
	}
	return c.Space.with(e, changing, func(ctx context.Context, n osier.Namespace) error {
		var sum any
		if notWhole == nil {
			sum, err = n.AddWith(ctx, c.Key, whole, osier.Fail)
		} else {
			sum, err = n.AddFloat(ctx, c.Key, decimal, osier.Fail)
		}
		switch {
		case err != nil:
			return err
		case e.json:
			return e.printJSON(map[string]any{"key": c.Key, "value": sum})
		}
		_, err := fmt.Fprintln(e.stdout, sum)
		return err
	})
}

type kvTTLCmd struct {
	Space   space          `arg:"" name:"db:namespace" help:"The namespace."`
	Key     string         `arg:"" help:"The key."`
	Set     *time.Duration `placeholder:"1h30m" xor:"ttl" help:"Let it live so long from now."`
	Persist bool           `xor:"ttl" help:"Let it live for ever."`
}

// Run shows or changes how long a key lives.
func (c *kvTTLCmd) Run(e *env) error {
	a := reading
	if c.Set != nil || c.Persist {
		a = changing
	}
	return c.Space.with(e, a, func(ctx context.Context, n osier.Namespace) error {
		found, err := true, error(nil)
		switch {
		case c.Set != nil:
			found, err = n.Expire(ctx, c.Key, *c.Set)
		case c.Persist:
			found, err = n.Persist(ctx, c.Key)
		}
		if err != nil {
			return err
		}
		m, err := n.Info(ctx, c.Key)
		switch {
		case err != nil:
			return err
		case !found || m.Type == osier.KVNone:
			return &exitError{exitMissing, fmt.Errorf("there is no key %s", oneLine(c.Key))}
		case e.json:
			return e.printJSON(describeKV(c.Key, osier.KVMeta{Type: m.Type, Version: m.Version, Deadline: m.Deadline}, nil))
		case m.Deadline == 0:
			_, err = fmt.Fprintln(e.stdout, "for ever")
		default:
			_, err = fmt.Fprintln(e.stdout, "until", rfc3339(m.Expires()))
		}
		return err
	})
}
