package server

import (
	"context"
	"sync"
	"time"

	"github.com/osierdb/osier"
)

// waits counts the requests that wait for changes, and ends them at a stop.
type waits struct {
	gauge Meter
	ctx   context.Context // ends at the stop
	end   context.CancelFunc

	mu    sync.Mutex // guards what follows
	total int
	each  map[string]int
}

func newWaits(gauge Meter) *waits {
	w := &waits{gauge: gauge, each: map[string]int{}}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

func (w *waits) stop() { w.end() }

// take takes a place; see Host.Wait.
func (w *waits) take(ctx context.Context, who string, total, each int) (context.Context, func(), error) {
	w.mu.Lock()
	if w.total >= total || w.each[who] >= each {
		w.mu.Unlock()
		return nil, nil, &osier.Error{Kind: osier.KindUnavailable, Op: "wait for changes",
			Err: &Throttled{Reason: "more requests wait for changes than the settings limits.waits and limits.waits_each allow", After: 5 * time.Second}}
	}
	w.total++
	w.each[who]++
	w.mu.Unlock()
	w.gauge.Add(1)
	waiting, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(w.ctx, func() { cancel(ErrStopping) })
	return waiting, sync.OnceFunc(func() {
		unhook()
		cancel(nil)
		w.gauge.Add(-1)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.total--
		if w.each[who]--; w.each[who] == 0 {
			delete(w.each, who)
		}
	}), nil
}
