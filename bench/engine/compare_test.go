package engine

import (
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier/bench/peers"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := Median(c.of); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}

// sample of one operation that took so many microseconds.
func sample(us int) peers.Sample {
	d := time.Duration(us) * time.Microsecond
	return peers.Sample{Ops: 1, Rows: 1, Elapsed: d, CPU: d}
}

// TestRatio: ratios are taken within a round, so that a slow round does not
// count for one side only.
func TestRatio(t *testing.T) {
	o := Outcome{
		Workload: Workload{Kind: Commit, Shape: peers.KiB, Rows: 1, Writers: 64},
		Samples: map[string][]peers.Sample{
			OsierJSON: {sample(10), sample(100), sample(20)},
			SQLite:    {sample(200), sample(2000), sample(500)},
		},
		Floor: map[string][]peers.Sample{OsierJSON: {sample(10), sample(50), sample(10)}},
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"sqlite to osier", o.Ratio(SQLite, OsierJSON), 20},
		{"osier to floor", o.FloorRatio(OsierJSON), 2},
		{"figure", o.Figure(OsierJSON), 20},
		{"absent peer", o.Ratio(RocksDB, OsierJSON), 0},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
	verdicts := map[string]string{}
	for _, v := range Judge([]Outcome{o}) {
		for _, peer := range []string{SQLite, RocksDB} {
			if strings.HasSuffix(v.Bar, peer) {
				verdicts[peer] = v.String()
			}
		}
	}
	if verdicts[SQLite] != "met" || verdicts[RocksDB] != "not measured" {
		t.Errorf("verdicts %v, want sqlite met and rocksdb not measured", verdicts)
	}
}

// TestComparison runs two workloads whole, as cmd/ratios does.
func TestComparison(t *testing.T) {
	c := &Comparison{Dir: t.TempDir(), Rounds: 2, Slice: time.Millisecond, Log: t.Logf, Absent: map[string]string{}}
	ws := []Workload{
		{Kind: Insert, Level: peers.Buffered, Shape: peers.Nebari, Rows: 10},
		{Kind: Get, Shape: peers.Nebari, Rows: 7, Of: 1000},
		{Kind: Scan, Shape: peers.Nebari, Rows: 31, Of: 1000},
	}
	out, err := c.Run(ws)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(ws) {
		t.Fatalf("%d outcomes, want %d", len(out), len(ws))
	}
	for _, o := range out {
		for _, x := range Contenders() {
			if c.Absent[x.Name] != "" {
				continue
			}
			if got := len(o.Samples[x.Name]); got != 2 || o.Figure(x.Name) <= 0 {
				t.Errorf("%v, %s: %d samples, figure %v", o.Workload, x.Name, got, o.Figure(x.Name))
			}
		}
	}
	var b strings.Builder
	WriteFigures(&b, out)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2+len(ws) {
		t.Errorf("table of %d lines, want %d:\n%s", len(lines), 2+len(ws), b.String())
	}
	for _, l := range lines {
		if got, want := strings.Count(l, "|"), strings.Count(lines[0], "|"); got != want {
			t.Errorf("%d bars in %q, want %d", got, l, want)
		}
	}
}

// TestOwnMeasurements runs what concerns Osier alone, small.
func TestOwnMeasurements(t *testing.T) {
	h, err := UpdateOne(t.TempDir())
	if err != nil || h.First <= 0 || h.Last <= 0 {
		t.Errorf("update one: %+v, %v", h, err)
	}
	o, err := Overwrite(t.TempDir(), 1000, 2)
	if err != nil || o.Mean < 1 || o.Worst < o.Mean || o.Idle < 1 {
		t.Errorf("overwrite: %+v, %v; a store cannot take less than what lives in it", o, err)
	}
	// The child is another program here: its answer is what is tested.
	r, disk, err := Reopen(t.TempDir(), 1000, 3, func(string, int64) *exec.Cmd {
		return exec.Command("echo", `{"Open":7,"FirstGet":8,"IdleRSS":9}`)
	})
	if want := (Reopened{Open: 7, FirstGet: 8, IdleRSS: 9}); err != nil || r != want || disk < 200*1000/4 {
		t.Errorf("reopen: %+v, %d bytes on disk, %v; want %+v", r, disk, err, want)
	}
	if _, _, err := Reopen(t.TempDir(), 10, 1, func(string, int64) *exec.Cmd { return exec.Command("false") }); err == nil {
		t.Error("a child that failed was not noticed")
	}
}
