package engine

import (
	"context"
	"runtime"
)

// turns keep long scans from crowding short requests out: all scans together
// work on one processor less than there are, and pass their turn on every
// hundred microseconds or so. A short request then never waits for more than
// that, however many scans there are.
type turns struct{ slots chan struct{} }

func newTurns() turns {
	return turns{slots: make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))}
}

// scanSlice is how many documents a scan looks at in one go.
const scanSlice = 256

// turn is a scan's part in turns. The zero value with its turns is ready; it is
// for one goroutine.
type turn struct {
	turns turns
	work  int
	held  bool
}

// step counts a document. Short scans never get to wait.
func (t *turn) step(ctx context.Context) error {
	if t.work++; t.work%scanSlice != 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.pause()
	runtime.Gosched()
	select {
	case t.turns.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.held = true
	return nil
}

// pause gives the turn back: before the reader of the scan is called, who may
// take as long as he wants and scan himself.
func (t *turn) pause() {
	if t.held {
		<-t.turns.slots
		t.held = false
	}
}

// resume takes a free turn after a pause. If there is none the scan goes on to
// the end of its slice without.
func (t *turn) resume() {
	if t.work < scanSlice || t.held {
		return
	}
	select {
	case t.turns.slots <- struct{}{}:
		t.held = true
	default:
	}
}
