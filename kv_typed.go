package osier

import (
	"context"
	"iter"
	"time"
)

// KVStore is where a typed namespace lives: a *DB, a *Tx or a *Batch.
type KVStore interface {
	KV(namespace string) Namespace
}

// KV is a typed namespace: its values are of type V. Declare it once, as a
// package variable, and use it with any database, transaction or batch.
//
//	var Sessions = osier.NewKV[Session]("sessions")
//	err := Sessions.SetFor(ctx, db, token, session, time.Hour)
//
// For everything that does not depend on V there is the Namespace: see In.
type KV[V any] struct {
	name string
	o    KVOptions
}

// KVOptions of NewKV. The zero value is useful.
type KVOptions struct {
	// Codec for values; nil: JSON, with which whole numbers can be added to.
	Codec Codec
	// Durability of writes; default Relaxed.
	Durability Durability
}

// NewKV declares a typed namespace. It panics if the name is against
// CheckKVName's rule, as that is a mistake in the program.
func NewKV[V any](namespace string, opts ...KVOptions) *KV[V] {
	if err := CheckKVName(namespace); err != nil {
		panic(err)
	}
	k := &KV[V]{name: namespace}
	if len(opts) > 0 {
		k.o = opts[0]
	}
	if k.o.Codec == nil {
		k.o.Codec = JSON
	}
	return k
}

// Name returns the namespace's name.
func (k *KV[V]) Name() string { return k.name }

// In returns the untyped namespace in s, with the durability declared.
func (k *KV[V]) In(s KVStore) Namespace {
	n := s.KV(k.name)
	if k.o.Durability != DurabilityDefault {
		n = n.With(k.o.Durability)
	}
	return n
}

// Get returns the value under a key. ErrNotFound if it is vacant, ErrInvalid if
// it holds something else than a V.
func (k *KV[V]) Get(ctx context.Context, s KVStore, key string) (v V, m KVMeta, err error) {
	e, err := k.In(s).Get(ctx, key)
	if err != nil {
		return v, m, err
	}
	v, err = k.decode(key, e.Value)
	return v, e.KVMeta, err
}

func (k *KV[V]) decode(key string, b []byte) (v V, err error) {
	if err = k.o.Codec.Decode(b, &v); err != nil {
		err = &Error{Kind: KindInvalid, Op: "decode value", Collection: "kv:" + k.name, ID: key, Err: err}
	}
	return v, err
}

func (k *KV[V]) encode(key string, v V) ([]byte, error) {
	b, err := k.o.Codec.Append(nil, v)
	if err != nil {
		return nil, &Error{Kind: KindInvalid, Op: "encode value", Collection: "kv:" + k.name, ID: key, Err: err}
	}
	return b, nil
}

// Set writes a value over whatever is there, and takes an expiration off.
func (k *KV[V]) Set(ctx context.Context, s KVStore, key string, v V) error {
	return k.SetFor(ctx, s, key, v, 0)
}

// SetFor writes a value that is gone after ttl; 0 is never.
func (k *KV[V]) SetFor(ctx context.Context, s KVStore, key string, v V, ttl time.Duration) error {
	b, err := k.encode(key, v)
	if err != nil {
		return err
	}
	return k.In(s).SetFor(ctx, key, b, ttl)
}

// Put writes a value as the options say. ErrConflict if the condition does not
// hold.
func (k *KV[V]) Put(ctx context.Context, s KVStore, key string, v V, o KVSetOptions) (KVDone, error) {
	b, err := k.encode(key, v)
	if err != nil {
		return KVDone{}, err
	}
	return k.In(s).Put(ctx, key, b, o)
}

// Modify reads the value (the zero V if the key is vacant), lets change work on
// it, and writes it back, again from the start when somebody else came in
// between. The key's expiration stays. An error of change ends it.
func (k *KV[V]) Modify(ctx context.Context, s KVStore, key string, change func(*V) error) (v V, err error) {
	n := k.In(s)
	for attempt := 0; ; attempt++ {
		b, m, err := n.Append(ctx, nil, key)
		if err != nil {
			return v, err
		}
		var fresh V
		if v = fresh; m.Found() {
			if v, err = k.decode(key, b); err != nil {
				return v, err
			}
		}
		if err := change(&v); err != nil {
			return v, err
		}
		if b, err = k.encode(key, v); err != nil {
			return v, err
		}
		_, err = n.Put(ctx, key, b, KVSetOptions{If: IfVersion, Version: m.Version, KeepExpiration: true})
		if err == nil || KindOf(err) != KindConflict || attempt >= maxAttempts {
			return v, err
		}
		if err := backoff(ctx, attempt); err != nil {
			return v, &Error{Kind: KindCanceled, Op: "modify", Collection: "kv:" + k.name, ID: key, Err: err}
		}
	}
}

// KVPair is a key with its decoded value.
type KVPair[V any] struct {
	Key   string
	Value V
	KVMeta
}

// Scan streams keys in order with their values, all of one state. Keys of other
// types than plain values are left out.
func (k *KV[V]) Scan(ctx context.Context, s KVStore, o *KVScan) iter.Seq2[KVPair[V], error] {
	return func(yield func(KVPair[V], error) bool) {
		for e, err := range k.In(s).Scan(ctx, o) {
			p := KVPair[V]{Key: e.Key, KVMeta: e.KVMeta}
			if err == nil && !e.Found() {
				continue
			}
			if err == nil && (o == nil || !o.NoValues) {
				p.Value, err = k.decode(e.Key, e.Value)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}
