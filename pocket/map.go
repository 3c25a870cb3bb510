package pocket

import (
	"context"
	"iter"
	"reflect"
)

// A Map is a store of records of one type, whose name need not be given again
// and again. Its Store is there for everything else.
type Map[T any] struct{ Store *Store }

// OpenMap opens a store for values of type T. Unless T is among opts.Types, or
// a text, number or boolean, it is registered under the name of the Go type
// without its package.
func OpenMap[T any](path string, opts *Options) (Map[T], error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	t := reflect.TypeFor[T]()
	known := isPlainKind(t)
	for _, k := range o.Types {
		known = known || k.typ == t
	}
	if !known {
		if t.Name() == "" {
			return Map[T]{}, invalid("type %v has no name; register it with TypeOf", t)
		}
		o.Types = append(o.Types[:len(o.Types):len(o.Types)], Type{name: t.Name(), typ: t})
	}
	s, err := Open(path, &o)
	return Map[T]{s}, err
}

// Get returns the value stored under key; see the function Get.
func (m Map[T]) Get(key string) (T, error) { return Get[T](m.Store, key) }

// Save stores value under key.
func (m Map[T]) Save(key string, value T) error { return m.Store.Save(key, value) }

// Delete removes the records that exist of keys, in one transaction.
func (m Map[T]) Delete(keys ...string) error { return m.Store.Delete(keys...) }

// Swap is the function Swap.
func (m Map[T]) Swap(key string, cond Condition, value T) (Item[T], bool, error) {
	return Swap(m.Store, key, cond, value)
}

// Prefix yields the keys that begin with prefix, with their values, in order.
func (m Map[T]) Prefix(prefix string) iter.Seq2[string, T] { return Prefix[T](m.Store, prefix) }

// All yields all keys with their values, in order.
func (m Map[T]) All() iter.Seq2[string, T] { return Scan[T](m.Store, All()) }

// Close closes the store.
func (m Map[T]) Close(ctx context.Context) error { return m.Store.Close(ctx) }
