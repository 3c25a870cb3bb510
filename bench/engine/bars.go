package engine

import (
	"fmt"
	"time"

	"github.com/osierdb/osier/bench/peers"
)

// Verdict is a bar with what was measured against it.
type Verdict struct {
	Bar    string
	Got    string
	Met    bool
	Absent bool // it could not be measured; Got says why
}

func (v Verdict) String() string {
	switch {
	case v.Absent:
		return "not measured"
	case v.Met:
		return "met"
	}
	return "missed"
}

// atMost judges got <= want.
func atMost(bar string, got, want float64, format string) Verdict {
	return Verdict{Bar: bar, Got: fmt.Sprintf(format, got), Met: got <= want, Absent: got == 0}.named()
}

// atLeast judges got >= want.
func atLeast(bar string, got, want float64, format string) Verdict {
	return Verdict{Bar: bar, Got: fmt.Sprintf(format, got), Met: got >= want, Absent: got == 0}.named()
}

func (v Verdict) named() Verdict {
	if v.Absent {
		v.Got = "a contender is missing"
	}
	return v
}

// Judge compares outcomes with the bars of the design. Documents are judged
// with the default codec, JSON; rows with the codec that they bring themselves.
func Judge(out []Outcome) []Verdict {
	var vs []Verdict
	for i := range out {
		o := &out[i]
		w := o.Workload
		switch {
		case w.Kind == Commit && w.Level == peers.Synced && w.Writers == 1:
			vs = append(vs, atMost("durable insert of 1 KiB, 1 writer: at most 1.6x append + fdatasync",
				o.FloorRatio(OsierJSON), 1.6, "%.2fx"))
		case w.Kind == Commit && w.Level == peers.Synced && w.Writers == 64:
			vs = append(vs, judgeMany(o)...)
		case w.Kind == Insert && w.Level == peers.Synced && w.Shape == peers.KiB && w.Rows == 1000:
			vs = append(vs, judgeBatch(o)...)
		case w.Kind == Get && w.Rows == 1:
			vs = append(vs, judgeGet(o)...)
		case w.Kind == Get && w.Shape == peers.Small && w.Rows == 100:
			vs = append(vs, judgeHundred(o, out)...)
		case w.Kind == Scan && w.Shape == peers.Small:
			vs = append(vs, atMost("scan through the typed API, 200 B documents: at most 150 ns a record",
				o.Figure(OsierBinary)*1e3, 150, "%.0f ns"))
		}
	}
	return vs
}

// judgeMany: documents a second of 64 writers against the peers'.
func judgeMany(o *Outcome) []Verdict {
	var vs []Verdict
	for _, b := range []struct {
		peer string
		want float64
	}{{SQLite, 20}, {Badger, 12}, {Bolt, 5}, {RocksDB, 1.3}} {
		vs = append(vs, atLeast(fmt.Sprintf("durable inserts of 1 KiB, 64 writers: at least %gx %s", b.want, b.peer),
			o.Ratio(b.peer, OsierJSON), b.want, "%.2fx"))
	}
	return vs
}

func judgeBatch(o *Outcome) []Verdict {
	vs := []Verdict{atMost("durable batch of 1,000 documents of 1 KiB: at most 20 us a document", o.Figure(OsierJSON), 20, "%.1f us")}
	for _, peer := range []string{Bolt, Badger, SQLite, RocksDB} {
		vs = append(vs, atLeast("durable batch of 1,000: ahead of "+peer, o.Ratio(peer, OsierJSON), 1, "%.2fx"))
	}
	return vs
}

func judgeGet(o *Outcome) []Verdict {
	what := o.Workload.String()
	return []Verdict{
		atMost(what+": at most 1.3x raw Pebble", o.Ratio(OsierBinary, Pebble), 1.3, "%.2fx"),
		atLeast(what+": ahead of SQLite", o.Ratio(SQLite, OsierBinary), 1, "%.2fx"),
	}
}

// judgeHundred scales the bar, 250 us where a raw Pebble get takes 2.6 us, to
// what a raw Pebble get takes here.
func judgeHundred(o *Outcome, all []Outcome) []Verdict {
	for i := range all {
		one := &all[i]
		if one.Workload.Kind != Get || one.Workload.Rows != 1 || one.Workload.Shape != peers.Small {
			continue
		}
		if g := one.Figure(Pebble); g > 0 {
			return []Verdict{atMost("100 documents at once: at most 96 raw Pebble gets (250 us where one takes 2.6 us)",
				o.Figure(OsierBinary)/g, 96, "%.0f gets")}
		}
	}
	return nil
}

// JudgeHot judges updates of one document.
func JudgeHot(hot []Hot) Verdict {
	var slow, end []float64
	for _, h := range hot {
		slow = append(slow, h.Slowdown())
		end = append(end, h.Last.Seconds()*1e6)
	}
	return Verdict{Bar: "10,000 updates of one document: the last thousand takes at most 1.2x the first", Met: Median(slow) <= 1.2,
		Got: fmt.Sprintf("%.2fx (medians; %.0f us an update at the end)", Median(slow), Median(end))}
}

const mb = 1e6

// JudgeReopen judges how a store with documents came up and idled.
func JudgeReopen(r Reopened, disk, docs int64) []Verdict {
	return []Verdict{
		{Bar: fmt.Sprintf("%d documents of 200 B: reopens within 50 ms after a clean close", docs), Met: r.Open <= 50*time.Millisecond,
			Got: fmt.Sprintf("%.1f ms, the first get %.2f ms", r.Open.Seconds()*1e3, r.FirstGet.Seconds()*1e3)},
		{Bar: fmt.Sprintf("%d documents of 200 B: idles under 150 MB", docs), Met: float64(r.IdleRSS) < 150*mb,
			Got: fmt.Sprintf("%.0f MB resident after gets and a scan of all (%.0f MB anonymous; Go runtime %.0f MB, block cache %.0f MB), %.0f MB when opened; %.0f MB on disk",
				float64(r.IdleRSS)/mb, float64(r.IdleAnon)/mb, float64(r.Go)/mb, float64(r.Cache)/mb, float64(r.OpenRSS)/mb, float64(disk)/mb)},
	}
}

// JudgeOverwrite judges disk use.
func JudgeOverwrite(o Overwritten) Verdict {
	return Verdict{Bar: fmt.Sprintf("disk per live byte under steady overwrites of %.0f MB: at most 2.2", float64(o.Live)/mb), Met: o.Mean <= 2.2,
		Got: fmt.Sprintf("%.2f on average, %.2f at worst, %.2f when idle", o.Mean, o.Worst, o.Idle)}
}
