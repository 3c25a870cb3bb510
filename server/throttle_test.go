package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Guessing gets slower with each failure, per account and per address, and is
// forgiven with time; nobody is locked out.
func TestFailuresSlowGuessingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures()
		try := func(account, addr string) time.Duration {
			start := time.Now()
			if err := f.before(t.Context(), account, addr); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		for n, want := range []time.Duration{0, 0, 0, 100, 200, 400, 800, 1600, 3200, 4000, 4000} {
			got := try("bob", fmt.Sprint("10.0.0.", n))
			if want *= time.Millisecond; got > want || got < want*3/4 { // some is forgiven meanwhile
				t.Errorf("after %d failures: want %v, got %v", n, want, got)
			}
			f.failed("bob", fmt.Sprint("10.0.0.", n))
		}
		if got := try("ann", "10.1.0.1"); got != 0 {
			t.Errorf("another account: want no delay, got %v", got)
		}
		f.succeeded("bob")
		if got := try("bob", "10.1.0.1"); got != 0 {
			t.Errorf("after a right password: want no delay, got %v", got)
		}
		for range 12 {
			f.failed("bob", "10.2.0.1")
		}
		time.Sleep(10 * failuresHalve)
		if got := try("bob", "10.2.0.1"); got != 0 {
			t.Errorf("after ten minutes: want no delay, got %v", got)
		}
	})
}

// An address that guesses the passwords of many accounts is refused, and a
// crowd of slowed logins is bounded.
func TestFailuresRefuseAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFailures()
		for n := range failuresPerAddr {
			f.failed(fmt.Sprint("user", n), "10.0.0.1")
		}
		var th *Throttled
		if err := f.before(t.Context(), "other", "10.0.0.1"); !errors.As(err, &th) || th.After <= 0 {
			t.Errorf("want it refused for a time, got %v", err)
		}
		if err := f.before(t.Context(), "other", "10.0.0.2"); err != nil {
			t.Errorf("another address: got %v", err)
		}
		for range 9 {
			f.failed("bob", "10.9.9.9")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, maxDelayed)
		for n := range maxDelayed {
			go func() { ended <- f.before(ctx, "bob", fmt.Sprint("10.3.0.", n)) }()
		}
		synctest.Wait()
		if err := f.before(ctx, "bob", "10.4.0.1"); !errors.As(err, &th) {
			t.Errorf("one more than may wait: want it refused, got %v", err)
		}
		cancel()
		for range maxDelayed {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("given up: got %v", err)
			}
		}
		if f.delayed != 0 {
			t.Errorf("want none left, got %d", f.delayed)
		}
	})
}

// The memory of failures and rates is bounded, however many names are tried.
func TestThrottleMemoryIsBounded(t *testing.T) {
	f, r := newFailures(), newRates()
	for n := range maxThrottleNames * 5 / 4 {
		f.failed(fmt.Sprint("user", n), fmt.Sprint("address", n))
		r.take(fmt.Sprint("user", n), 1, 1)
	}
	if len(f.recent) > maxThrottleNames+1 || len(r.buckets) > maxThrottleNames {
		t.Errorf("want at most %d, got %d and %d", maxThrottleNames, len(f.recent), len(r.buckets))
	}
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRates()
		for n := range 5 {
			if _, ok := r.take("bob", 2, 5); !ok {
				t.Fatalf("request %d of the burst is refused", n)
			}
		}
		wait, ok := r.take("bob", 2, 5)
		if ok || wait != time.Second/2 {
			t.Errorf("want to wait 500ms, got %v, %t", wait, ok)
		}
		if _, ok := r.take("ann", 2, 5); !ok {
			t.Error("another is refused")
		}
		time.Sleep(wait)
		if _, ok := r.take("bob", 2, 5); !ok {
			t.Error("refused after the wait")
		}
		for range 100 {
			if _, ok := r.take("bob", 0, 5); !ok {
				t.Fatal("refused without a limit")
			}
		}
	})
}

// Places for waiting requests are counted, for all and for each; thousands
// that come and go leave nothing.
func TestWaits(t *testing.T) {
	gauge := &sum{}
	w := newWaits(gauge)
	var releases []func()
	take := func(who string) error {
		_, release, err := w.take(t.Context(), who, 3, 2)
		if err == nil {
			releases = append(releases, release)
		}
		return err
	}
	var th *Throttled
	for i, c := range []struct {
		who string
		ok  bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"c", false}} {
		if err := take(c.who); (err == nil) != c.ok || err != nil && !errors.As(err, &th) {
			t.Errorf("%d: want %t, got %v", i, c.ok, err)
		}
	}
	for _, release := range releases {
		release()
		release() // once is enough
	}
	for range 20_000 {
		_, release, err := w.take(t.Context(), "a", 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	if w.total != 0 || len(w.each) != 0 || gauge.n != 0 {
		t.Errorf("want none left, got %d, %v, %v", w.total, w.each, gauge.n)
	}
	ctx, release, err := w.take(t.Context(), "a", 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	w.stop()
	<-ctx.Done()
	if context.Cause(ctx) != ErrStopping {
		t.Errorf("want %v, got %v", ErrStopping, context.Cause(ctx))
	}
}

type sum struct{ n float64 }

func (s *sum) Add(n float64) { s.n += n }
