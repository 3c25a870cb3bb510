package server

import (
	"context"
	"math"
	"sync"
	"time"
)

// What failed logins cost. The first three are free: people mistype.
const (
	freeFailures     = 3
	firstDelay       = 100 * time.Millisecond
	maxDelay         = 4 * time.Second
	failuresHalve    = time.Minute // half of the failures are forgiven each such time
	failuresPerAddr  = 60          // recent ones, after which an address is refused
	maxDelayed       = 256         // logins that wait at once
	maxThrottleNames = 16 << 10
)

// failures slows the guessing of passwords down, per account and per address.
// An account is never locked: that would let anybody lock others out.
type failures struct {
	mu      sync.Mutex // guards what follows
	recent  map[string]*failure
	delayed int
}

type failure struct {
	count float64
	at    time.Time
}

func newFailures() *failures { return &failures{recent: map[string]*failure{}} }

// count returns the failures of key that are not forgiven yet.
func (f *failures) count(key string, now time.Time) float64 {
	x := f.recent[key]
	if x == nil {
		return 0
	}
	return x.count * math.Exp2(-float64(now.Sub(x.at))/float64(failuresHalve))
}

// delay is what n failures cost the next try.
func delay(n float64) time.Duration {
	if n < freeFailures {
		return 0
	}
	return min(maxDelay, time.Duration(float64(firstDelay)*math.Exp2(n-freeFailures)))
}

// before holds a login up for as long as account and address have earned, and
// refuses it with a *Throttled if there were too many failures.
func (f *failures) before(ctx context.Context, account, addr string) error {
	now := time.Now()
	f.mu.Lock()
	byAddr := f.count("address "+addr, now)
	wait := max(delay(f.count("account "+account, now)), delay(byAddr/4))
	if byAddr >= failuresPerAddr || wait > 0 && f.delayed >= maxDelayed {
		f.mu.Unlock()
		return &Throttled{Reason: "too many failed logins: wait a while", After: failuresHalve}
	}
	if wait == 0 {
		f.mu.Unlock()
		return nil
	}
	f.delayed++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.delayed--
		f.mu.Unlock()
	}()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failed notes a wrong password.
func (f *failures) failed(account, addr string) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range []string{"account " + account, "address " + addr} {
		n := f.count(key, now)
		f.room(now)
		f.recent[key] = &failure{n + 1, now}
	}
}

// succeeded forgives the account's failures; the address keeps its own, as
// whoever guesses others' passwords may know one.
func (f *failures) succeeded(account string) {
	f.mu.Lock()
	delete(f.recent, "account "+account)
	f.mu.Unlock()
}

// room keeps the map bounded: what is forgiven goes first, then any.
func (f *failures) room(now time.Time) {
	if len(f.recent) < maxThrottleNames {
		return
	}
	for key := range f.recent {
		if f.count(key, now) < 0.5 {
			delete(f.recent, key)
		}
	}
	for key := range f.recent {
		if len(f.recent) < maxThrottleNames*3/4 {
			return
		}
		delete(f.recent, key)
	}
}

// rates is a token bucket for each principal or address.
type rates struct {
	mu      sync.Mutex // guards buckets
	buckets map[string]bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newRates() *rates { return &rates{buckets: map[string]bucket{}} }

// take takes a token of key's bucket, which fills with perSecond tokens up to
// burst. If there is none it tells how long one takes.
func (r *rates) take(key string, perSecond float64, burst int) (wait time.Duration, ok bool) {
	if perSecond <= 0 {
		return 0, true
	}
	full := max(1, float64(burst))
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	b, there := r.buckets[key]
	if !there {
		r.room(now, perSecond, full)
		b = bucket{full, now}
	}
	b.tokens = min(full, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	if ok = b.tokens >= 1; ok {
		b.tokens--
	} else {
		wait = time.Duration((1 - b.tokens) / perSecond * float64(time.Second))
	}
	r.buckets[key] = b
	return wait, ok
}

// room drops full buckets, which are as good as none, and then any.
func (r *rates) room(now time.Time, perSecond, full float64) {
	if len(r.buckets) < maxThrottleNames {
		return
	}
	for key, b := range r.buckets {
		if b.tokens+now.Sub(b.at).Seconds()*perSecond >= full {
			delete(r.buckets, key)
		}
	}
	for key := range r.buckets {
		if len(r.buckets) < maxThrottleNames*3/4 {
			return
		}
		delete(r.buckets, key)
	}
}
