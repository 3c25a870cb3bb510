package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// The test binary started again with this variable is a process that writes to
// the folder it names, until it is killed or its standard input ends.
const (
	writerEnv      = "OSIER_TEST_WRITER"
	writerSinceEnv = "OSIER_TEST_WRITER_SINCE"
	writerSeedEnv  = "OSIER_TEST_WRITER_SEED"
)

// What the writer prints: events, and lines with one of these marks.
const (
	lineOpening = "opening"
	lineReady   = "ready " // and the last sequence found
	lineFailed  = "failed "
)

// After a process was killed, everything acknowledged as Sync or Buffered is
// there, and the rest as a whole prefix; see TestCrashOfTheMachine.
func TestCrashOfTheProcess(t *testing.T) {
	if testing.Short() && raceEnabled {
		t.Skip("starts many processes")
	}
	seed := seedOf(t)
	dir := filepath.Join(t.TempDir(), "store")
	w := newWitness()
	total, judged := map[eventKind]int{}, 0
	for round := 0; judged < rounds(50, 4); round++ {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		killedWriter(t, rng, name, dir, w)
		if rng.IntN(4) == 0 || t.Failed() {
			continue // the next writer recovers
		}
		e, err := Open(dir, writerOptions())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(mustRows(t, e, &osier.Query{Kind: osier.QueryDatabases})) > 0 {
			judged++
			w.judge(t, name, e, afterKill)
			if judged%5 == 0 || testing.Short() {
				checkClean(t, e, name)
			}
		}
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
	for k, n := range w.count {
		total[k] += n
	}
	t.Logf("%d processes killed and judged, %d acknowledgements, %d changes shown", judged, total[eventAcked], total[eventShown])
}

// afterKill says what survives the end of a process.
func afterKill(d osier.Durability) bool { return d != osier.Relaxed }

func writerOptions() *Options {
	return &Options{CacheBytes: 4 << 20, SyncInterval: 20 * time.Millisecond, store: store.Options{MemTableBytes: 256 << 10}}
}

// killedWriter starts a writer, kills it after a random number of lines, and
// notes all that it said.
func killedWriter(t *testing.T, rng *rand.Rand, name, dir string, w *witness) {
	t.Helper()
	defer watchdog(2*time.Minute, name)()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), writerEnv+"="+dir, fmt.Sprintf("%s=%d", writerSinceEnv, w.shownTo), fmt.Sprintf("%s=%d", writerSeedEnv, rng.Uint64()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 1 + rng.IntN(600)
	if rng.IntN(5) == 0 {
		lines = 1 + rng.IntN(2) // while it opens, or right after
	}
	if err := hear(out, w, lines, func() error { return cmd.Process.Kill() }); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if err := cmd.Wait(); err == nil {
		t.Errorf("%s: the writer ended by itself", name)
	}
}

// hear notes what a writer says, kills it after n lines and takes in what it
// had said by then. A line that the kill cut off counts for nothing.
func hear(out io.Reader, w *witness, n int, kill func() error) error {
	r := bufio.NewReader(out)
	for ; ; n-- {
		if n == 0 {
			if err := kill(); err != nil {
				return err
			}
		}
		line, err := r.ReadString('\n')
		if err != nil {
			if n > 0 {
				return errors.Join(errors.New("the writer ended by itself"), kill())
			}
			return nil
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == lineOpening:
		case strings.HasPrefix(line, lineReady):
			last, err := strconv.ParseUint(strings.TrimPrefix(line, lineReady), 10, 64)
			if err != nil {
				return errors.Join(err, kill())
			}
			w.reopened(osier.Seq(last), afterKill)
		case strings.HasPrefix(line, lineFailed):
			return errors.Join(errors.New("the writer "+line), kill())
		default:
			ev, err := parseEvent(line)
			if err != nil {
				return errors.Join(err, kill())
			}
			w.note(ev)
		}
	}
}

// writerProcess is the writer.
func writerProcess(dir string) int {
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		// One write a line, straight into the pipe.
		if _, err := os.Stdout.WriteString(line + "\n"); err != nil {
			os.Exit(1)
		}
	}
	go func() {
		// Nobody is left who would kill us.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := write(dir, say); err != nil {
		say(lineFailed + strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func write(dir string, say func(string)) error {
	since, err := strconv.ParseUint(os.Getenv(writerSinceEnv), 10, 64)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(writerSeedEnv), 10, 64)
	if err != nil {
		return err
	}
	say(lineOpening)
	e, err := Open(dir, writerOptions())
	if err != nil {
		return err
	}
	s, err := newStorm(e, osier.Seq(since), func(ev event) { say(ev.String()) })
	if err != nil {
		return err
	}
	info, err := s.db.Info(context.Background())
	if err != nil {
		return err
	}
	say(lineReady + fmt.Sprint(info.LastSeq))
	return s.run(context.Background(), seed)
}
