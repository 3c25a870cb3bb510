package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
	"github.com/osierdb/osier/osiertest"
)

// lab opens engines for the suite, knows each by its store so that it can be
// reopened, and checks each when its test ends.
type lab struct {
	inMemory bool
	as       *osier.Principal

	mu    sync.Mutex // guards all below
	dirs  map[*osier.Store]string
	clock map[*osier.Store]func() time.Time
	eng   map[*osier.Store]*engine.Engine
}

func newLab(inMemory bool) *lab {
	return &lab{inMemory: inMemory, dirs: map[*osier.Store]string{}, clock: map[*osier.Store]func() time.Time{}, eng: map[*osier.Store]*engine.Engine{}}
}

func (l *lab) open(t *testing.T, dir string, clock func() time.Time) *osier.Store {
	t.Helper()
	e, err := engine.Open(dir, &engine.Options{InMemory: l.inMemory, Clock: clock, Durability: osier.Buffered})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	s := e.Store
	if l.as != nil {
		s = s.As(*l.as)
	}
	t.Cleanup(func() {
		rep, err := e.Check(context.Background(), func(p engine.Problem) { t.Errorf("check: %v", p) })
		if err != nil && osier.KindOf(err) != osier.KindClosed {
			t.Errorf("check: %v (%+v)", err, rep)
		}
		e.Close()
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirs[s], l.clock[s], l.eng[s] = dir, clock, e
	return s
}

func (l *lab) harness() osiertest.Harness {
	h := osiertest.Harness{
		New:   func(t *testing.T) *osier.Store { return l.open(t, t.TempDir(), nil) },
		NewAt: func(t *testing.T, clock func() time.Time) *osier.Store { return l.open(t, t.TempDir(), clock) },
		Caps:  osiertest.Caps{MaxBodyBytes: engine.MaxBodyBytes, Views: true},
	}
	if !l.inMemory {
		h.Reopen = func(t *testing.T, s *osier.Store) *osier.Store {
			l.mu.Lock()
			dir, clock, e := l.dirs[s], l.clock[s], l.eng[s]
			l.mu.Unlock()
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			return l.open(t, dir, clock)
		}
	}
	return h
}

func TestConformanceOnDisk(t *testing.T)   { osiertest.Run(t, newLab(false).harness()) }
func TestConformanceInMemory(t *testing.T) { osiertest.Run(t, newLab(true).harness()) }

func TestConformanceAsAdmin(t *testing.T) {
	admin := osier.Admin("root")
	l := newLab(true)
	l.as = &admin
	osiertest.Run(t, l.harness())
}
