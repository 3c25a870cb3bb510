package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// progressInterval is how often a progress bar is drawn at most.
const progressInterval = 100 * time.Millisecond

// progress draws a line that shows how far a long work is. It is silent unless
// it goes to a terminal. It is not safe for concurrent use.
type progress struct {
	w     io.Writer // nil: silent
	now   func() time.Time
	width int
	label string
	unit  string // what done and total count: "B", or a noun for items
	total uint64 // 0: not known
	from  uint64 // where this run began
	begin time.Time
	drawn time.Time
	shown bool
}

// newProgress begins to measure.
func (e *env) newProgress(label, unit string, total, from uint64) *progress {
	p := &progress{now: e.clock, width: e.columns(), label: label, unit: unit, total: total, from: from, begin: e.clock()}
	if e.errTerminal && !e.json {
		p.w = e.stderr
	}
	return p
}

// update draws the line, unless that was done a moment ago.
func (p *progress) update(done, docs uint64) {
	if p.w == nil {
		return
	}
	now := p.now()
	if now.Sub(p.begin) < progressInterval || now.Sub(p.drawn) < progressInterval {
		return
	}
	p.drawn, p.shown = now, true
	// An error here would be one of drawing only.
	fmt.Fprint(p.w, "\r\x1b[K"+p.line(done, docs, now.Sub(p.begin)))
}

// clear takes the line away, so that other output can be written.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// line is at most width-1 characters long.
func (p *progress) line(done, docs uint64, elapsed time.Duration) string {
	seconds := max(elapsed.Seconds(), 1e-3)
	stats := fmt.Sprintf("%s docs  %s/s", grouped(docs), grouped(uint64(float64(docs)/seconds)))
	if p.unit == "B" {
		size := humanSize(done)
		if p.total > 0 {
			size += " of " + humanSize(p.total)
		}
		stats = size + "  " + stats
	}
	if p.total == 0 {
		return cutLine(p.label+"  "+stats, p.width)
	}
	share := min(float64(done)/float64(p.total), 1)
	if moved := float64(done) - float64(p.from); moved > 0 {
		left := float64(p.total-min(done, p.total)) / (moved / seconds)
		stats += "  " + clockTime(time.Duration(left*float64(time.Second))) + " left"
	}
	percent := fmt.Sprintf("%3d%%", int(share*100))
	room := p.width - 1 - utf8.RuneCountInString(p.label+percent+stats) - len("  [] ") - 2
	if room < 5 {
		return cutLine(p.label+"  "+percent+"  "+stats, p.width)
	}
	room = min(room, 40)
	full := int(share * float64(room))
	return fmt.Sprintf("%s  [%s%s] %s  %s", p.label, strings.Repeat("#", full), strings.Repeat("-", room-full), percent, stats)
}

func cutLine(s string, width int) string {
	r := []rune(s)
	return string(r[:min(len(r), width-1)])
}

// clockTime writes a duration as minutes:seconds or hours:minutes:seconds.
func clockTime(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
