package server

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

// tasks implements Tasks.
type tasks struct {
	mu   sync.Mutex // guards what follows
	last int64
	all  map[int64]*TaskInfo
}

func newTasks() *tasks { return &tasks{all: map[int64]*TaskInfo{}} }

// task is one of them.
type task struct {
	t *tasks
	n int64
}

// Start is Tasks'.
func (t *tasks) Start(kind, db string) Task {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.all[t.last] = &TaskInfo{ID: strconv.FormatInt(t.last, 10), Kind: kind, DB: db, Started: now, Updated: now}
	return &task{t, t.last}
}

// List is Tasks'.
func (t *tasks) List() []TaskInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]TaskInfo, 0, len(t.all))
	for _, x := range t.all {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b TaskInfo) int {
		if c := a.Started.Compare(b.Started); c != 0 {
			return c
		}
		return len(a.ID) - len(b.ID)
	})
	return list
}

func (x *task) Progress(done, total int64) {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	if i := x.t.all[x.n]; i != nil {
		i.Done, i.Total, i.Updated = done, total, time.Now()
	}
}

func (x *task) End() {
	x.t.mu.Lock()
	delete(x.t.all, x.n)
	x.t.mu.Unlock()
}
