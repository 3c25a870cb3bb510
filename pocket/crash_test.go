package pocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// crashRun writes numbered transactions of several records until the file
// system is taken away, and knows what must have survived.
//
// Transaction i saves i under three of eight keys a0..a7 and under "last", and
// deletes and saves "flag" in turn. So the state after each is known.
type crashRun struct {
	states []map[string]string // states[i] after transaction i
	acked  int                 // transactions that were acknowledged
	synced int                 // of them, those known to be on the disk
}

func newCrashRun() *crashRun { return &crashRun{states: []map[string]string{{}}} }

func (c *crashRun) next() []Change {
	i := len(c.states)
	state := make(map[string]string)
	for k, v := range c.states[i-1] {
		state[k] = v
	}
	var changes []Change
	save := func(k string) {
		changes = append(changes, Change{Key: k, Value: strconv.Itoa(i)})
		state[k] = strconv.Itoa(i)
	}
	for j := range 3 {
		save(fmt.Sprintf("a%d", (i+j*3)%8))
	}
	save("last")
	if i%2 == 0 {
		changes = append(changes, Change{Key: "flag"})
		delete(state, "flag")
	} else {
		save("flag")
	}
	c.states = append(c.states, state)
	return changes
}

// verify opens what a crash has left and returns the number of transactions
// in it. It must be the state after some whole transaction, and at least least.
func (c *crashRun) verify(t *testing.T, s *Store, least int, what string) int {
	t.Helper()
	got := map[string]string{}
	for k, v := range Scan[string](s, All()) {
		got[k] = v
	}
	n := 0
	if v, ok := got["last"]; ok {
		n, _ = strconv.Atoi(v)
	}
	if n >= len(c.states) || fmt.Sprint(got) != fmt.Sprint(c.states[n]) {
		t.Fatalf("%s: got %v, which is not the state after transaction %d: %v", what, got, n, c.states[min(n, len(c.states)-1)])
	}
	if n < least {
		t.Fatalf("%s: got the state after transaction %d, but %d had to survive", what, n, least)
	}
	check(t, s)
	return n
}

// A loss of power at any moment takes no synced transaction, and leaves the
// state after some whole one, in every mode and during rewrites too.
func TestPowerLoss(t *testing.T) {
	for _, d := range []Durability{Synced, Delayed, Cached} {
		for seed := range uint64(150) {
			powerLoss(t, d, seed)
		}
	}
}

// newSeededFS returns a disk: for half of the seeds a file system that renames no open file, as Windows does.
func newSeededFS(seed uint64) *crashFS {
	disk := newCrashFS()
	disk.locksOpen = seed%2 == 1
	return disk
}

func powerLoss(t *testing.T, d Durability, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(d)))
	what := fmt.Sprintf("%v, seed %d", d, seed)
	disk := newSeededFS(seed)
	o := &Options{Durability: d, RewriteRatio: -1, SyncEvery: time.Hour, Compress: seed%5 == 0, NoMap: seed%3 == 0, fs: disk}
	run := newCrashRun()
	for life := range 3 {
		s, err := Open("/x/crash.pocket", o)
		if err != nil {
			t.Fatalf("%s, life %d: %v", what, life, err)
		}
		n := run.verify(t, s, run.synced, what)
		run.states = run.states[:n+1]
		run.acked, run.synced = n, n
		for range r.IntN(30) {
			if _, err := s.SaveAll(run.next()...); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			run.acked++
			if d == Synced {
				run.synced = run.acked
			}
			switch r.IntN(12) {
			case 0:
				if err := s.Sync(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				run.synced = run.acked
			case 1:
				if err := s.Rewrite(context.Background()); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				run.synced = run.acked
			}
		}
		if r.IntN(4) == 0 {
			// The process ends, the machine goes on: nothing may be lost.
			disk = disk.kill()
			run.synced = run.acked
		} else {
			disk = disk.crash(r)
		}
		abandonStore(s)
		o.fs = disk
	}
}

// abandonStore stops the goroutines of a store whose process has died.
func abandonStore(s *Store) {
	s.stop()
	s.work.Wait()
}

// Whichever operation of the file system fails, callers are told, nothing
// hangs, nothing acknowledged is lost, and the file opens again.
func TestFailingDisk(t *testing.T) {
	for _, d := range []Durability{Synced, Cached} {
		for variant := range 4 {
			locksOpen, noMap := variant&1 != 0, variant&2 != 0
			for fail := 1; ; fail++ {
				if !failingDisk(t, &Options{Durability: d, NoMap: noMap}, fail, locksOpen) {
					if fail < 10 {
						t.Fatalf("only %d operations", fail)
					}
					break
				}
			}
		}
	}
}

// failingDisk reports whether the failure was met.
func failingDisk(t *testing.T, o *Options, fail int, locksOpen bool) bool {
	t.Helper()
	d := o.Durability
	disk := newCrashFS()
	disk.fail, disk.locksOpen = fail, locksOpen
	what := fmt.Sprintf("%v, NoMap %v, operation %d fails, renames open files: %v", d, o.NoMap, fail, !locksOpen)
	o.RewriteRatio, o.fs = -1, disk
	run := newCrashRun()
	s, err := Open("/x/fail.pocket", o)
	if err == nil {
		failingWork(t, s, run, what)
		if err := s.Close(context.Background()); err == nil && d == Synced {
			run.synced = run.acked
		}
	} else if !errors.Is(err, errInjected) {
		t.Fatalf("%s: open: %v", what, err)
	}
	met := disk.ops >= fail
	disk.fail = 0
	after := disk.kill()
	if d == Synced {
		after = disk.crash(rand.New(rand.NewPCG(uint64(fail), 1)))
	}
	s, err = Open("/x/fail.pocket", &Options{Durability: d, RewriteRatio: -1, fs: after})
	if err != nil {
		t.Fatalf("%s: open again: %v", what, err)
	}
	run.verify(t, s, run.acked, what)
	if err := s.Save("after", "x"); err != nil {
		t.Fatalf("%s: save afterwards: %v", what, err)
	}
	mustClose(t, s)
	return met
}

func failingWork(t *testing.T, s *Store, run *crashRun, what string) {
	t.Helper()
	failed := 0
	for i := range 8 {
		changes := run.next()
		if _, err := s.SaveAll(changes...); err == nil {
			run.acked = len(run.states) - 1
		} else {
			if !errors.Is(err, errInjected) {
				t.Fatalf("%s: save: %v", what, err)
			}
			if failed++; errors.Is(err, ErrFailed) {
				return // its outcome is open; the states know it
			}
			// It never happened.
			run.states = run.states[:len(run.states)-1]
		}
		if i%3 == 2 {
			if err := s.Rewrite(context.Background()); err != nil && !errors.Is(err, errInjected) {
				t.Fatalf("%s: rewrite: %v", what, err)
			}
		}
	}
	if failed > 1 {
		t.Fatalf("%s: %d saves failed", what, failed)
	}
}

const crashChild = "POCKET_CRASH_CHILD"

// TestMain lets the test binary be the writer that gets killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashChild); path != "" {
		crashWriter(path, os.Getenv(crashChild+"_MODE"))
		return
	}
	os.Exit(m.Run())
}

// crashWriter saves until it is killed, and prints what is acknowledged.
func crashWriter(path, mode string) {
	o := &Options{RewriteRatio: 0.3, RewriteMinBytes: 10_000}
	for _, d := range []Durability{Synced, Delayed, Cached} {
		if d.String() == mode {
			o.Durability = d
		}
	}
	s, err := Open(path, o)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	run := newCrashRun()
	if v, err := Get[int](s, "count"); err == nil {
		for range v {
			run.next()
		}
	}
	out := bufio.NewWriter(os.Stdout)
	for {
		changes := run.next()
		n := len(run.states) - 1
		if _, err := s.SaveAll(append(changes, Change{Key: "count", Value: n})...); err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Fprintln(out, n)
		out.Flush()
	}
}

// A writer that is killed with SIGKILL at any moment, also in the middle of
// the rewrites that its work causes, loses nothing it has acknowledged.
func TestKill(t *testing.T) {
	lives := 6
	if testing.Short() {
		lives = 2
	}
	for _, d := range []Durability{Synced, Delayed, Cached} {
		t.Run(d.String(), func(t *testing.T) {
			path := tempPath(t)
			r := rand.New(rand.NewPCG(7, uint64(d)))
			acked := 0
			for range lives {
				acked = killOnce(t, path, d, acked+1+r.IntN(400))
			}
		})
	}
}

// killOnce runs a writer until it has acknowledged transaction target, kills
// it and checks the file. It returns the last transaction in it.
func killOnce(t *testing.T, path string, d Durability, target int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashChild+"="+path, crashChild+"_MODE="+d.String())
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := 0
	sc := bufio.NewScanner(pipe)
	for sc.Scan() {
		n, err := strconv.Atoi(sc.Text())
		if err != nil {
			t.Fatalf("writer says %q", sc.Text())
		}
		acked = n
		if n == target {
			cmd.Process.Kill()
		}
	}
	cmd.Wait() // killed, so always an error
	if acked < target {
		t.Fatalf("the writer ended after %d of %d transactions", acked, target)
	}
	s, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Get[int](s, "count")
	if err != nil || n < acked {
		t.Fatalf("%v: transaction %d was acknowledged, %d is there: %v", d, acked, n, err)
	}
	run := newCrashRun()
	for range n {
		run.next()
	}
	if err := s.Delete("count"); err != nil {
		t.Fatal(err)
	}
	run.verify(t, s, acked, d.String())
	mustSave(t, s, "count", n)
	if r := s.Report(); r.SkippedCount > 0 || len(r.Edited) > 0 {
		t.Fatalf("%v: report after a kill: %+v", d, r)
	}
	mustClose(t, s)
	return n
}

// Cut at any byte, a file gives the state after a whole transaction, and what
// is saved next is not glued to the rest.
func TestTornAtEveryByte(t *testing.T) {
	path := tempPath(t)
	o := &Options{Durability: Cached, RewriteRatio: -1}
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	run := newCrashRun()
	for range 6 {
		if _, err := s.SaveAll(run.next()...); err != nil {
			t.Fatal(err)
		}
	}
	// Before Close, as a crash would find it.
	text := strings.TrimRight(readFile(t, path), "\x00")
	mustClose(t, s)
	last := -1
	for n := range len(text) + 1 {
		for _, rest := range []string{"", "\x00\x00\x00\x00"} {
			writeFile(t, path, text[:n]+rest)
			s, err := Open(path, o)
			if err != nil {
				t.Fatal(err)
			}
			got := run.verify(t, s, 0, fmt.Sprintf("cut at %d", n))
			if got < last {
				t.Fatalf("cut at %d: transaction %d, but a shorter file had %d", n, got, last)
			}
			last = got
			mustSave(t, s, "new", "x")
			mustClose(t, s)
			s = mustOpen(t, path, o)
			if _, err := Get[string](s, "new"); err != nil || !s.Report().Clean() {
				t.Fatalf("cut at %d: after another save: %v, %+v", n, err, s.Report())
			}
			mustClose(t, s)
		}
	}
	if last != 6 {
		t.Fatalf("the whole file has %d transactions", last)
	}
	if left, _ := os.ReadDir(path[:strings.LastIndexByte(path, '/')]); len(left) != 1 {
		t.Fatalf("files left behind: %v", slices.Collect(func(yield func(string) bool) {
			for _, e := range left {
				yield(e.Name())
			}
		}))
	}
}

// On a system that renames no open file, a rewrite that somebody else's handle
// keeps from replacing the file leaves the store as it was, and one that
// nothing hinders goes through beside writers.
func TestRewriteOfLockedFile(t *testing.T) {
	for _, d := range []Durability{Synced, Cached} {
		disk := newCrashFS()
		disk.locksOpen = true
		o := &Options{Durability: d, RewriteRatio: -1, fs: disk}
		const path = "/x/locked.pocket"
		s := mustOpen(t, path, o)
		for i := range 100 {
			mustSave(t, s, fmt.Sprint(i%10), i)
		}
		other, err := disk.open(path, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Rewrite(context.Background()); !errors.Is(err, errInUse) {
			t.Fatalf("%v: rewrite beside another handle: got error %v, want %v", d, err, errInUse)
		}
		if _, err := disk.stat(rewritePath(path)); err == nil {
			t.Errorf("%v: the unfinished file stays", d)
		}
		mustSave(t, s, "after", 1)
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		saved := 0
		wg.Go(func() {
			for ; ; saved++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Save("writer", saved); err != nil {
					t.Errorf("%v: save: %v", d, err)
					return
				}
			}
		})
		for range 3 {
			if err := s.Rewrite(context.Background()); err != nil {
				t.Fatalf("%v: rewrite: %v", d, err)
			}
		}
		close(stop)
		wg.Wait()
		mustSave(t, s, "last", saved)
		check(t, s)
		want := dump(s)
		mustClose(t, s)
		s = mustOpen(t, path, o)
		wantSame(t, d.String(), dump(s), want)
		mustGet(t, s, "last", saved)
	}
}
