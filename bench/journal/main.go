// Command journal compares Osier's journals with RocksDB, through its C++ API,
// and its topics with plain Go channels: the same events, in the same run, in
// turns. It prints a table of ratios.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

const eventBytes = 58

// cost is what n operations took.
type cost struct {
	wall, cpu time.Duration
	n         int
}

func (c cost) nanos() (wall, cpu float64) {
	return float64(c.wall.Nanoseconds()) / float64(c.n), float64(c.cpu.Nanoseconds()) / float64(c.n)
}

// measure runs fn and returns what it took.
func measure(n int, fn func() error) (cost, error) {
	start, used := time.Now(), processorTime()
	err := fn()
	return cost{time.Since(start), processorTime() - used, n}, err
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// contender keeps a log of events.
type contender interface {
	// append returns what it took until the last append returned, if that is not
	// the whole of it, and until the log had all.
	append(n, batch int) (answered, logged cost, err error)
	settle() error
	read(n, times int) (cost, error)
	close() error
}

type osierLog struct {
	eng  *engine.Engine
	db   *osier.DB
	log  *osier.Journal
	next uint64
}

func openOsier(dir string) (contender, error) {
	eng, err := engine.Open(dir, &engine.Options{CacheBytes: 256 << 20})
	if err != nil {
		return nil, err
	}
	o := &osierLog{eng: eng, log: osier.NewJournal("log", osier.JournalSettings{Durability: osier.Relaxed})}
	if o.db, err = eng.DB(context.Background(), "bench", osier.Schema(o.log)); err != nil {
		return nil, errors.Join(err, eng.Close())
	}
	_, err = o.log.Append(context.Background(), o.db, make([]byte, eventBytes))
	return o, err
}

func (o *osierLog) append(n, batch int) (answered, logged cost, err error) {
	ctx := context.Background()
	data := make([]byte, batch*eventBytes)
	events := make([]osier.Event, batch)
	for i := range events {
		events[i].Data = data[i*eventBytes : (i+1)*eventBytes]
	}
	logged, err = measure(n, func() error {
		var err error
		answered, err = measure(n, func() error { return o.appendAll(events, n) })
		// RocksDB's log has them all by now.
		return errors.Join(err, o.eng.Flush(ctx))
	})
	return answered, logged, err
}

func (o *osierLog) appendAll(events []osier.Event, n int) error {
	ctx, batch := context.Background(), len(events)
	for done := 0; done < n; done += batch {
		for i := range events {
			binary.LittleEndian.PutUint64(events[i].Data, o.next)
			o.next++
		}
		var err error
		if batch == 1 {
			_, err = o.log.Append(ctx, o.db, events[0].Data)
		} else {
			_, err = o.log.AppendEvents(ctx, o.db, events, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *osierLog) settle() error { return o.eng.Compact(context.Background()) }

func (o *osierLog) read(n, times int) (cost, error) {
	ctx := context.Background()
	return measure(n*times, func() error {
		for range times {
			left, bytes := n, 0
			for e, err := range o.log.Read(ctx, o.db, &osier.ReadOptions{All: true, Limit: n}) {
				if err != nil {
					return err
				}
				bytes += len(e.Data)
				left--
			}
			if left > 0 || bytes != n*eventBytes {
				return fmt.Errorf("%d events are missing", left)
			}
		}
		return nil
	})
}

func (o *osierLog) close() error { return o.eng.Close() }

type rocksLog struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func openRocks(program, dir string) (contender, error) {
	r := &rocksLog{cmd: exec.Command(program)}
	r.cmd.Stderr = os.Stderr
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewScanner(out)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = r.ask(1, "open %s", dir)
	return r, err
}

func (r *rocksLog) ask(n int, format string, args ...any) (cost, error) {
	if _, err := fmt.Fprintf(r.in, format+"\n", args...); err != nil {
		return cost{}, err
	}
	if !r.out.Scan() {
		return cost{}, errors.Join(errors.New("rocksdb: the program ended"), r.out.Err())
	}
	var a struct {
		Error   string
		Ns, CPU int64
	}
	if err := json.Unmarshal(r.out.Bytes(), &a); err != nil {
		return cost{}, err
	}
	if a.Error != "" {
		return cost{}, errors.New("rocksdb: " + a.Error)
	}
	return cost{time.Duration(a.Ns), time.Duration(a.CPU), n}, nil
}

func (r *rocksLog) append(n, batch int) (answered, logged cost, err error) {
	logged, err = r.ask(n, "append %d %d", n, batch)
	return cost{}, logged, err
}
func (r *rocksLog) settle() error { _, err := r.ask(1, "settle"); return err }
func (r *rocksLog) read(n, times int) (cost, error) {
	return r.ask(n*times, "read %d %d", n, times)
}
func (r *rocksLog) close() error { r.in.Close(); return r.cmd.Wait() }

// row is a kind of work, with what each round took each contender.
type row struct {
	name         string
	osier, other []cost
}

func (r *row) print() {
	median := func(costs []cost) (wall, cpu float64) {
		var walls, cpus []float64
		for _, c := range costs {
			w, p := c.nanos()
			walls, cpus = append(walls, w), append(cpus, p)
		}
		slices.Sort(walls)
		slices.Sort(cpus)
		return walls[len(walls)/2], cpus[len(cpus)/2]
	}
	w, c := median(r.osier)
	if len(r.other) == 0 {
		fmt.Printf("| %s | %.0f | %.0f | | |\n", r.name, w, c)
		return
	}
	var walls, cpus []float64
	for i := range r.osier {
		ow, oc := r.osier[i].nanos()
		tw, tc := r.other[i].nanos()
		walls, cpus = append(walls, tw/ow), append(cpus, tc/oc)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	fmt.Printf("| %s | %.0f | %.0f | %.2fx | %.2fx |\n", r.name, w, c, walls[len(walls)/2], cpus[len(cpus)/2])
}

func run() error {
	dir := flag.String("dir", os.TempDir(), "folder for the stores, on the disk to be measured")
	rounds := flag.Int("rounds", 5, "rounds, each contender in turn in each")
	events := flag.Int("events", 400_000, "events a round and kind of append")
	_, file, _, _ := runtime.Caller(0)
	program := flag.String("rocksdb", filepath.Join(filepath.Dir(file), "rocksdb", "events"), "the RocksDB program; see its Makefile")
	flag.Parse()
	base, err := os.MkdirTemp(*dir, "journal-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(base)
	_, err = os.Stat(*program)
	rocks := err == nil
	if !rocks {
		fmt.Fprintln(os.Stderr, "without RocksDB: its program is not built, run make -C journal/rocksdb")
	}
	fmt.Println("| a 58-byte event | Osier ns | processor ns | RocksDB's time / Osier's | processor time / Osier's |")
	fmt.Println("|---|---|---|---|---|")
	rows := []*row{{name: "append one at a time, answered"}, {name: "append one at a time, in the log and fsynced"},
		{name: "append 100 at once, answered"}, {name: "append 100 at once, in the log and fsynced"}, {name: "read 10,000 in order"}}
	for r := range *rounds {
		open := map[string]func() (contender, error){
			"osier": func() (contender, error) { return openOsier(filepath.Join(base, fmt.Sprint("osier", r))) },
			"rocks": func() (contender, error) { return openRocks(*program, filepath.Join(base, fmt.Sprint("rocks", r))) },
		}
		order := []string{"osier", "rocks"}
		if r%2 == 1 {
			slices.Reverse(order)
		}
		for _, name := range order {
			if name == "rocks" && !rocks {
				continue
			}
			if err := round(rows, name == "osier", open[name], *events); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, r := range rows {
		r.print()
	}
	return topics(*rounds, cmp.Or(*events/4, 1))
}

// round takes one contender through all kinds of work.
func round(rows []*row, ours bool, open func() (contender, error), events int) error {
	c, err := open()
	if err != nil {
		return err
	}
	add := func(r *row, c cost) {
		if ours {
			r.osier = append(r.osier, c)
		} else {
			r.other = append(r.other, c)
		}
	}
	for i, batch := range []int{1, 100} {
		answered, logged, err := c.append(events, batch)
		if err != nil {
			return errors.Join(err, c.close())
		}
		if ours {
			add(rows[2*i], answered)
		}
		add(rows[2*i+1], logged)
	}
	if err := c.settle(); err != nil {
		return errors.Join(err, c.close())
	}
	if _, err := c.read(10_000, 5); err != nil { // to warm the cache
		return errors.Join(err, c.close())
	}
	t, err := c.read(10_000, 100)
	if err != nil {
		return errors.Join(err, c.close())
	}
	add(rows[4], t)
	return c.close()
}

const subscribers = 10

// topics measures deliveries to ten subscribers, beside ten channels, and how
// long a message takes at a steady rate.
func topics(rounds, messages int) error {
	eng, err := engine.Open("", &engine.Options{InMemory: true})
	if err != nil {
		return err
	}
	defer eng.Close()
	db, err := eng.DB(context.Background(), "bench")
	if err != nil {
		return err
	}
	r := &row{name: "deliver a message, 10 subscribers"}
	for range rounds {
		c, err := measure(messages*subscribers, func() error { return publish(db, messages) })
		if err != nil {
			return err
		}
		r.osier = append(r.osier, c)
		c, err = measure(messages*subscribers, func() error { channels(messages); return nil })
		if err != nil {
			return err
		}
		r.other = append(r.other, c)
	}
	fmt.Println("\n| topics | Osier ns | processor ns | Go channels' time / Osier's | processor time / Osier's |")
	fmt.Println("|---|---|---|---|---|")
	r.print()
	return latency(db)
}

func publish(db *osier.DB, messages int) error {
	ctx := context.Background()
	var wg sync.WaitGroup
	errs := make(chan error, subscribers)
	for range subscribers {
		s, err := osier.Subscribe(ctx, db, &osier.TopicFeed{Patterns: []string{"orders.*"}, Buffer: osier.MaxTopicBuffer, BufferBytes: 1 << 30})
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer s.Close()
			for n := 0; n < messages; n++ {
				m, err := s.Next(ctx)
				if err != nil || m.Missed > 0 {
					errs <- fmt.Errorf("after %d messages: %w, or some were missed", n, err)
					return
				}
			}
		})
	}
	data := make([]byte, 64)
	for range messages {
		if err := osier.Publish(ctx, db, osier.Message{Topic: "orders.created", Data: data}, false); err != nil {
			return err
		}
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// channels does the same with a buffered channel a subscriber; a full one holds
// the publisher up, which Osier's do not.
func channels(messages int) {
	var wg sync.WaitGroup
	var to [subscribers]chan *osier.Message
	for i := range to {
		to[i] = make(chan *osier.Message, osier.DefaultTopicBuffer)
		wg.Go(func() {
			for range to[i] {
			}
		})
	}
	data := make([]byte, 64)
	for range messages {
		m := &osier.Message{Topic: "orders.created", Data: data}
		for _, c := range to {
			c <- m
		}
	}
	for _, c := range to {
		close(c)
	}
	wg.Wait()
}

// latency publishes at a steady rate for two seconds, and tells how long messages
// took to ten subscribers, and to ten Go channels in the same way: what the
// scheduler and the machine take, both have. What the schedule cannot keep up with
// counts as waiting.
func latency(db *osier.DB) error {
	fmt.Println("\n| from publishing to receipt, 10 subscribers, 100,000 messages a second | p50 us | p99 us | p99.9 us |")
	fmt.Println("|---|---|---|---|")
	var took, byChannel []int64
	for range 3 {
		t, err := topicLatency(db)
		if err != nil {
			return err
		}
		took = append(took, t...)
		byChannel = append(byChannel, channelLatency()...)
	}
	for i, all := range [][]int64{took, byChannel} {
		name := []string{"Osier", "Go channels"}[i]
		slices.Sort(all)
		at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1000 }
		fmt.Printf("| %s, %d deliveries | %.1f | %.1f | %.1f |\n", name, len(all), at(0.5), at(0.99), at(0.999))
	}
	return nil
}

const (
	latencyRate    = 100_000 // messages a second
	latencySeconds = 2
	latencyCount   = latencyRate * latencySeconds
)

// paced calls send at the rate, with the moment in it, and sleeps between. The
// system's call does: an idle process wakes from time.Sleep in whole milliseconds,
// so that it would publish a hundred messages at once; and a loop that waits awake
// takes a processor from those who receive.
func paced(start time.Time, send func(data []byte) error) error {
	for n := 0; n < latencyCount; {
		due := int(time.Since(start).Seconds() * latencyRate)
		for ; n < min(due, latencyCount); n++ {
			if err := send(binary.LittleEndian.AppendUint64(nil, uint64(time.Since(start).Nanoseconds()))); err != nil {
				return err
			}
		}
		runtime.Gosched()
		if err := syscall.Nanosleep(&syscall.Timespec{Nsec: 5000}, nil); err != nil && err != syscall.EINTR {
			return err
		}
	}
	return nil
}

// clockFrom appends how long ago a message was sent.
func clockFrom(took []int64, start time.Time, data []byte) []int64 {
	return append(took, time.Since(start).Nanoseconds()-int64(binary.LittleEndian.Uint64(data)))
}

func topicLatency(db *osier.DB) ([]int64, error) {
	ctx := context.Background()
	var wg sync.WaitGroup
	took := make([][]int64, subscribers)
	for i := range took {
		took[i] = make([]int64, 0, latencyCount)
	}
	start := time.Now()
	for i := range subscribers {
		s, err := osier.Subscribe(ctx, db, &osier.TopicFeed{Patterns: []string{"ticks"}, Buffer: osier.MaxTopicBuffer})
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			defer s.Close()
			for range latencyCount {
				m, err := s.Next(ctx)
				if err != nil {
					return
				}
				took[i] = clockFrom(took[i], start, m.Data)
			}
		})
	}
	err := paced(start, func(data []byte) error {
		return osier.Publish(ctx, db, osier.Message{Topic: "ticks", Data: data}, false)
	})
	wg.Wait()
	return slices.Concat(took...), err
}

func channelLatency() []int64 {
	var wg sync.WaitGroup
	took := make([][]int64, subscribers)
	for i := range took {
		took[i] = make([]int64, 0, latencyCount)
	}
	start := time.Now()
	var to [subscribers]chan []byte
	for i := range to {
		to[i] = make(chan []byte, osier.DefaultTopicBuffer)
		wg.Go(func() {
			for data := range to[i] {
				took[i] = clockFrom(took[i], start, data)
			}
		})
	}
	// It sends to channels only, so it cannot fail.
	_ = paced(start, func(data []byte) error {
		for _, c := range to {
			c <- data
		}
		return nil
	})
	for _, c := range to {
		close(c)
	}
	wg.Wait()
	return slices.Concat(took...)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "journal:", err)
		os.Exit(1)
	}
}
