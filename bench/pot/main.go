// Command pot compares package pot with other codecs: the sizes of their
// output and the processor time that they take, as ratios to fxamacker/cbor in
// the same run. It prints the tables of pot/README.md.
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/osierdb/osier/pot"
)

// set is a list of values that are encoded each by itself.
type set struct {
	name   string
	values []any
	fresh  func() any
	repeat int // times per round, so that a round is long enough to measure
}

func sets() []set {
	logs := makeLogs()
	small := set{name: "records: 1,000 records of the log set, each by itself", fresh: func() any { return new(Record) }, repeat: 5}
	for i := range 1000 {
		small.values = append(small.values, &logs.Logs[i])
	}
	posts := set{name: "posts: 1,000 small documents, each by itself", fresh: func() any { return new(Post) }, repeat: 5}
	for _, p := range makePosts() {
		posts.values = append(posts.values, p)
	}
	return []set{
		{"log: 10,000 records in one value", []any{logs}, func() any { return new(Logs) }, 1},
		{"archive: 1,000 entries in one value", []any{makeArchive()}, func() any { return new(Archive) }, 5},
		small, posts,
	}
}

// result is what one codec does on one set.
type result struct {
	encode, decode  []time.Duration // a round each, of the whole set
	allocs          float64         // of decoding, a value
	raw, gzip, zstd int
	larger          int // values larger than in the baseline
	sizes           []int
}

func main() {
	rounds := flag.Int("rounds", 15, "rounds of which the median counts; with 0 fields only")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "pot:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	runtime.LockOSThread()
	buf := bytes.Repeat([]byte{1}, 4<<20) // written to, so that its pages are there
	for _, s := range sets() {
		if rounds == 0 {
			break
		}
		list, err := codecs() // with tables of their own
		if err != nil {
			return err
		}
		results := make([]result, len(list))
		encoded := make([][][]byte, len(list))
		for i, c := range list {
			if encoded[i], err = results[i].measureSizes(c, s); err != nil {
				return fmt.Errorf("%s on %s: %w", c.name, s.name, err)
			}
		}
		for range rounds { // interleaved, so that a noisy moment meets all alike
			for i, c := range list {
				if err := results[i].measureTimes(c, s, encoded[i], buf); err != nil {
					return fmt.Errorf("%s on %s: %w", c.name, s.name, err)
				}
			}
		}
		report(list, s, results)
	}
	return fields()
}

func (r *result) measureSizes(c codec, s set) ([][]byte, error) {
	var encoded [][]byte
	for range 2 { // the second time with what the first left in a table
		encoded, r.sizes = nil, nil
		for _, v := range s.values {
			b, err := c.encode(nil, v)
			if err != nil {
				return nil, err
			}
			encoded = append(encoded, b)
			r.sizes = append(r.sizes, len(b))
		}
	}
	all := bytes.Join(encoded, nil)
	r.raw = len(all)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(all); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	r.gzip = z.Len()
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		return nil, err
	}
	r.zstd = len(zw.EncodeAll(all, nil))
	for i, b := range encoded {
		got := s.fresh()
		if err := c.decode(b, got); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(got, s.values[i]) {
			return nil, fmt.Errorf("value %d comes back changed", i)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range encoded {
		if err := c.decode(b, s.fresh()); err != nil {
			return nil, err
		}
	}
	runtime.ReadMemStats(&after)
	r.allocs = float64(after.Mallocs-before.Mallocs) / float64(len(encoded))
	return encoded, nil
}

func (r *result) measureTimes(c codec, s set, encoded [][]byte, buf []byte) error {
	begin := threadTime()
	for range s.repeat {
		for _, v := range s.values {
			if _, err := c.encode(buf[:0], v); err != nil {
				return err
			}
		}
	}
	r.encode = append(r.encode, threadTime()-begin)
	begin = threadTime()
	for range s.repeat {
		for _, b := range encoded {
			if err := c.decode(b, s.fresh()); err != nil {
				return err
			}
		}
	}
	r.decode = append(r.decode, threadTime()-begin)
	return nil
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

func report(list []codec, s set, results []result) {
	var base *result
	for i, c := range list {
		if c.name == baseline {
			base = &results[i]
		}
	}
	n := float64(len(s.values))
	fmt.Printf("\n%s\n\n| codec | bytes | gzip | zstd | encode | decode | allocations | values larger than in CBOR |\n|---|---|---|---|---|---|---|---|\n", s.name)
	for i, c := range list {
		r := &results[i]
		for j := range r.sizes {
			if r.sizes[j] > base.sizes[j] {
				r.larger++
			}
		}
		fmt.Printf("| %s | %.0f (%.2fx) | %.0f (%.2fx) | %.0f (%.2fx) | %.2fx | %.2fx | %.1f | %d |\n", c.name,
			float64(r.raw)/n, ratio(r.raw, base.raw), float64(r.gzip)/n, ratio(r.gzip, base.gzip), float64(r.zstd)/n, ratio(r.zstd, base.zstd),
			median(r.encode)/median(base.encode), median(r.decode)/median(base.decode), r.allocs, r.larger)
	}
}

func ratio(a, b int) float64 { return float64(a) / float64(b) }

// fields compares reading one field through a view with decoding the record.
func fields() error {
	logs := makeLogs()
	table := pot.NewTable(nil)
	for _, c := range []struct {
		name string
		enc  pot.EncodeOptions
	}{
		{"V4", pot.EncodeOptions{}},
		{"V4, table", pot.EncodeOptions{Table: table, NoHeader: true}},
		{"Shapes, table", pot.EncodeOptions{Mode: pot.Shapes, Table: table, NoHeader: true}},
	} {
		if err := fieldsOf(c.name, logs, &c.enc); err != nil {
			return err
		}
	}
	return farField(logs)
}

// fieldsOf prints how long it takes to read the code of each of a thousand
// records in several ways.
func fieldsOf(name string, logs *Logs, enc *pot.EncodeOptions) error {
	opts := &pot.DecodeOptions{Mode: enc.Mode, Table: enc.Table, NoHeader: enc.NoHeader}
	var payloads [][]byte
	for i := range 1000 {
		b, err := enc.Marshal(&logs.Logs[i])
		if err != nil {
			return err
		}
		payloads = append(payloads, b)
	}
	view, code := pot.NewView(opts), pot.NewPath("code")
	ways := []func(b []byte) error{
		func(b []byte) error {
			v, err := view.Find(b, code)
			if err != nil {
				return err
			}
			_, err = v.Uint()
			return err
		},
		func(b []byte) error {
			root, err := view.Open(b)
			if err != nil {
				return err
			}
			v, err := root.Field("code")
			if err != nil {
				return err
			}
			_, err = v.Uint()
			return err
		},
		func(b []byte) error { return opts.Unmarshal(b, new(Record)) },
		func(b []byte) error { var v any; return opts.Unmarshal(b, &v) },
	}
	times := make([][]time.Duration, len(ways))
	for range 31 {
		for i, do := range ways {
			begin := threadTime()
			for _, b := range payloads {
				if err := do(b); err != nil {
					return err
				}
			}
			times[i] = append(times[i], threadTime()-begin)
		}
	}
	find := median(times[0])
	fmt.Printf("\n%s: finding one field of a record takes %.0f ns; by Open and Field %.1fx, decoding the record into a struct %.1fx, into any %.1fx of that\n",
		name, find/1000, median(times[1])/find, median(times[2])/find, median(times[3])/find)
	return nil
}

// farField prints how long it takes to read a field in the middle of the log set.
func farField(logs *Logs) error {
	whole, err := (&pot.EncodeOptions{Mode: pot.Shapes}).Marshal(logs)
	if err != nil {
		return err
	}
	view := pot.NewView(nil)
	times := make([][]time.Duration, 2)
	for range 31 {
		begin := threadTime()
		root, err := view.Open(whole)
		if err != nil {
			return err
		}
		v, err := root.Get("logs", "5000", "code")
		if err != nil {
			return err
		}
		if _, err := v.Uint(); err != nil {
			return err
		}
		times[0] = append(times[0], threadTime()-begin)
		begin = threadTime()
		if err := pot.Unmarshal(whole, new(Logs)); err != nil {
			return err
		}
		times[1] = append(times[1], threadTime()-begin)
	}
	fmt.Printf("\nreading a field of record 5,000 of the log set through a view: decoding the set takes %.1fx of that\n", median(times[1])/median(times[0]))
	return nil
}
