// Command ratios measures Osier's document engine beside its peers, all in one
// interleaved run, and prints Markdown: the bars with what was measured against
// them, and every figure.
//
//	go run ./cmd/ratios -quick      about two minutes: the bars, without stores of a million rows
//	go run ./cmd/ratios             everything, some 20 minutes and 8 GB of disk
//	go run ./cmd/ratios -only '^get|^scan'
//
// With -only, workloads that the expression matches are run, by their names in
// the table; those of Osier alone are "update one", "reopen" and "overwrite".
//
// The folder of -dir must be on the disk in question. It exits with 1 if
// something could not be run, and with 0 whether bars are met or not: a busy
// machine is no reason to fail a build.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/osierdb/osier/bench/engine"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "a run of about two minutes, for a look")
	dir := flag.String("dir", os.TempDir(), "folder for the stores, on the disk to be measured")
	rounds := flag.Int("rounds", 5, "rounds that medians are taken over")
	slice := flag.Duration("slice", 0, "how long each contender works in a round (0: 300ms, quick 80ms)")
	only := flag.String("only", "", "run only what this regular expression matches")
	child := flag.Int64("reopen-child", 0, "for the program's own use: open the store in -dir with that many documents")
	flag.Parse()
	if *child > 0 {
		if err := engine.ReopenChild(*dir, *child); err != nil {
			log.Fatal(err)
		}
		return
	}
	if *slice == 0 {
		*slice = 300 * time.Millisecond
		if *quick {
			*slice = 80 * time.Millisecond
		}
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal("ratios: -only: ", err)
	}
	r := runner{dir: *dir, quick: *quick, rounds: *rounds, slice: *slice, only: match}
	if err := r.run(); err != nil {
		log.Fatal("ratios: ", err)
	}
}

type runner struct {
	dir    string
	quick  bool
	rounds int
	slice  time.Duration
	only   *regexp.Regexp
	say    func(format string, args ...any)
}

func (r *runner) run() error {
	start := time.Now()
	load := engine.Load()
	r.say = func(format string, args ...any) {
		log.Printf("%6.1fs  "+format, append([]any{time.Since(start).Seconds()}, args...)...)
	}
	c := &engine.Comparison{Dir: r.dir, Rounds: r.rounds, Slice: r.slice, Log: r.say, Absent: map[string]string{}}
	plan := slices.DeleteFunc(engine.Plan(r.quick), func(w engine.Workload) bool { return !r.only.MatchString(w.String()) })
	out, err := c.Run(plan)
	if err != nil {
		return err
	}
	own, err := r.own()
	if err != nil {
		return err
	}
	fmt.Printf("Machine: %s. Load average %s at the start, %s at the end. Medians of %d rounds, slices of %v; %v in all.\n\n",
		engine.Machine(r.dir), load, engine.Load(), r.rounds, r.slice, time.Since(start).Round(time.Second))
	for name, why := range c.Absent {
		fmt.Printf("Not measured: %s: %s\n\n", name, why)
	}
	engine.WriteVerdicts(os.Stdout, append(engine.Judge(out), own...))
	engine.WriteFigures(os.Stdout, out)
	return nil
}

// overwrites is how many documents of 1 KiB are written over.
const overwrites = 100_000

// own runs what concerns Osier alone.
func (r *runner) own() (vs []engine.Verdict, err error) {
	docs, times, rounds := int64(1_000_000), 4, r.rounds
	if r.quick {
		docs, times, rounds = 100_000, 2, min(rounds, 3)
	}
	if r.only.MatchString("update one") {
		r.say("10,000 updates of one document")
		var hot []engine.Hot
		for range rounds {
			h, err := engine.UpdateOne(r.dir)
			if err != nil {
				return nil, fmt.Errorf("update one document: %w", err)
			}
			hot = append(hot, h)
		}
		vs = append(vs, engine.JudgeHot(hot))
	}
	if r.only.MatchString("reopen") {
		r.say("reopening %d documents", docs)
		got, err := r.reopen(docs, rounds)
		if err != nil {
			return nil, fmt.Errorf("reopen: %w", err)
		}
		vs = append(vs, got...)
	}
	if r.only.MatchString("overwrite") {
		r.say("overwriting %d documents", overwrites)
		o, err := engine.Overwrite(r.dir, overwrites, times)
		if err != nil {
			return nil, fmt.Errorf("overwrite: %w", err)
		}
		vs = append(vs, engine.JudgeOverwrite(o))
	}
	return vs, nil
}

// reopen has this program open the store in child processes.
func (r *runner) reopen(docs int64, rounds int) ([]engine.Verdict, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	got, disk, err := engine.Reopen(r.dir, docs, rounds, func(dir string, docs int64) *exec.Cmd {
		return exec.Command(self, "-dir", dir, "-reopen-child", strconv.FormatInt(docs, 10))
	})
	return engine.JudgeReopen(got, disk, docs), err
}
