package osier

import (
	"context"
	"errors"
	"time"
)

// Lease is the right to something, held for a time. Its Token is greater than
// that of every earlier lease on the key, also across releases, expirations,
// crashes and reopening: whatever the lease protects should refuse a token
// smaller than one it has seen, since a holder may find out late that its time
// was over.
type Lease struct {
	Key     string
	Holder  string
	Token   uint64
	Expires time.Time // by the store's clock

	n Namespace
}

// Acquire takes the lease under a key for ttl, if nobody holds it; else
// ErrConflict. Holder is shown to those who fail. Taking, renewing and releasing
// are always Sync: a token that was given out cannot be taken back by a crash.
func (n Namespace) Acquire(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	if _, direct := n.w.(*DB); !direct {
		return nil, n.fail(KindUnsupported, "acquire lease", key, "a lease is not taken within a transaction or batch: its token comes from the commit")
	}
	n = n.With(Sync)
	if ttl <= 0 {
		return nil, n.fail(KindInvalid, "acquire lease", key, "a time to live is more than 0")
	}
	millis, err := n.millis("acquire lease", key, ttl)
	if err != nil {
		return nil, err
	}
	res, err := n.do(ctx, &KVOp{Verb: KVLeaseAcquire, Key: key, Value: []byte(holder), TTL: millis})
	if err != nil {
		return nil, err
	}
	return &Lease{Key: key, Holder: holder, Token: res.Number, Expires: deadlineTime(res.Deadline), n: n}, nil
}

// AcquireWait is Acquire that waits until the lease is free, or ctx ends. Those
// who wait are not in a queue: whoever comes first after a release has it.
func (n Namespace) AcquireWait(ctx context.Context, key, holder string, ttl time.Duration) (*Lease, error) {
	l, err := n.Acquire(ctx, key, holder, ttl)
	if KindOf(err) != KindConflict {
		return l, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The feed's first row says that it has begun: from then on no release
	// is missed.
	for ch, err := range n.WatchKey(ctx, key) {
		if err != nil {
			return nil, err
		}
		if !ch.Mark && ch.KV.Type != KVNone {
			continue
		}
		l, err := n.Acquire(ctx, key, holder, ttl)
		if KindOf(err) != KindConflict {
			return l, err
		}
	}
	return nil, n.fail(KindUnavailable, "acquire lease", key, "the feed ended")
}

// Renew makes the lease last ttl from now. ErrConflict if it is not held any
// more: its time was over, or it was released.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	if ttl <= 0 {
		return l.n.fail(KindInvalid, "renew lease", l.Key, "a time to live is more than 0")
	}
	millis, err := l.n.millis("renew lease", l.Key, ttl)
	if err != nil {
		return err
	}
	res, err := l.n.do(ctx, &KVOp{Verb: KVLeaseRenew, Key: l.Key, Number: l.Token, TTL: millis})
	if err != nil {
		return err
	}
	l.Expires = deadlineTime(res.Deadline)
	return nil
}

// Release gives the lease back. ErrConflict if it is not held any more.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.n.do(ctx, &KVOp{Verb: KVLeaseRelease, Key: l.Key, Number: l.Token})
	return err
}

// ErrLeaseLost is the cause with which WithLock cancels its function's context.
var ErrLeaseLost = errors.New("the lease was lost")

// WithLock waits for the lease under a key, runs fn while it holds it, renewing
// it every third of ttl, and gives it back. When the lease is lost (it could not
// be renewed before its time was over, or somebody else has it) fn's context is
// cancelled with ErrLeaseLost as its cause, and WithLock returns an error that
// matches it even if fn returned nil: what fn did then may have raced with
// another holder, unless it was fenced by the token.
func (n Namespace) WithLock(ctx context.Context, key, holder string, ttl time.Duration, fn func(ctx context.Context, l *Lease) error) error {
	l, err := n.AcquireWait(ctx, key, holder, ttl)
	if err != nil {
		return err
	}
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	given := *l // fn's own: the renewing below changes l
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		l.keep(ctx, ttl, stop, lose)
	}()
	err = fn(held, &given)
	close(stop)
	<-stopped
	if cause := context.Cause(held); errors.Is(cause, ErrLeaseLost) {
		return errors.Join(cause, err)
	}
	if released := l.Release(context.WithoutCancel(ctx)); err == nil && released != nil {
		return errors.Join(ErrLeaseLost, released)
	}
	return err
}

// keep renews the lease until stop, or until it is lost.
func (l *Lease) keep(ctx context.Context, ttl time.Duration, stop <-chan struct{}, lose context.CancelCauseFunc) {
	tick := time.NewTicker(max(ttl/3, time.Millisecond))
	defer tick.Stop()
	over := time.NewTimer(ttl)
	defer over.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			<-stop
			return
		case <-over.C:
			lose(ErrLeaseLost)
			<-stop
			return
		case <-tick.C:
		}
		began := time.Now()
		renewing, cancel := context.WithTimeout(ctx, ttl/3+time.Millisecond)
		err := l.Renew(renewing, ttl)
		cancel()
		if err == nil {
			over.Reset(ttl - time.Since(began))
		} else if KindOf(err) == KindConflict {
			lose(ErrLeaseLost)
			<-stop
			return
		}
	}
}
