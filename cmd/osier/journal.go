package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/osierdb/osier"
)

type journalCmd struct {
	Append journalAppendCmd `cmd:"" help:"Append an event, or each line of the standard input."`
	Read   journalReadCmd   `cmd:"" help:"Show events; without a beginning, those of the last hour."`
	Tail   journalTailCmd   `cmd:"" help:"Show the last events, and those that come until stopped."`
	Info   journalInfoCmd   `cmd:"" help:"Describe a journal, or list a database's."`
	Set    journalSetCmd    `cmd:"" help:"Make a journal, or change its settings."`
	Trim   journalTrimCmd   `cmd:"" help:"Drop the events before a position or time."`
	Drop   journalDropCmd   `cmd:"" help:"Delete a journal and all in it."`
}

// journalTarget is DB:JOURNAL on the command line.
type journalTarget struct{ db, name string }

// UnmarshalText is how kong reads it.
func (t *journalTarget) UnmarshalText(text []byte) error {
	db, name, ok := strings.Cut(string(text), ":")
	if !ok || name == "" {
		return fmt.Errorf("want DB:JOURNAL, not %q", text)
	}
	t.db, t.name = db, name
	return errors.Join(osier.CheckDBName(db), osier.CheckJournalName(name))
}

func (t journalTarget) target() target { return target{db: t.db} }

// eventJSON is an event in JSON output and, without a position, input.
type eventJSON struct {
	Position string  `json:"position,omitempty"`
	Time     string  `json:"time,omitempty"`
	Type     string  `json:"type,omitempty"`
	Expires  string  `json:"expires,omitempty"`
	Text     *string `json:"text,omitempty"`
	Base64   *string `json:"base64,omitempty"` // instead of Text if that is no UTF-8
}

func describeEvent(ev *osier.Event) eventJSON {
	j := eventJSON{Position: ev.Position.String(), Time: ev.Position.Time().Format(time.RFC3339Nano), Type: ev.Type}
	if !ev.Expires.IsZero() {
		j.Expires = rfc3339(ev.Expires)
	}
	text := string(ev.Data)
	if utf8.Valid(ev.Data) {
		j.Text = &text
	} else {
		text = base64.StdEncoding.EncodeToString(ev.Data)
		j.Base64 = &text
	}
	return j
}

// showEvents prints events as they come.
func (e *env) showEvents(seq func(func(osier.Event, error) bool), live bool) error {
	t := e.table("POSITION", "TIME", "TYPE", "EVENT")
	t.cut = true
	for ev, err := range seq {
		if err != nil {
			if live && e.ctx.Err() != nil {
				err = nil // Ctrl-C is how it ends
			}
			return errors.Join(t.flush(), err)
		}
		if e.json {
			err = e.printJSON(describeEvent(&ev))
		} else {
			err = t.row(ev.Position.String(), e.time(ev.Position.Time()), ev.Type, string(ev.Data))
		}
		if err == nil && live {
			err = errors.Join(t.flush(), e.flush())
		}
		if err != nil {
			return err
		}
	}
	return t.flush()
}

type journalAppendCmd struct {
	Target  journalTarget `arg:"" name:"db:journal" help:"The journal; it is made if need be."`
	Event   *string       `arg:"" optional:"" help:"The event's text; without it, each line of the standard input is one."`
	Type    string        `help:"Their type."`
	Expires time.Duration `help:"End them by themselves after so long."`
	Key     string        `help:"Append once: a second append with this key changes nothing (needs EVENT)."`
	Create  bool          `help:"Make the store and the database if need be."`
}

// appendLines bounds how many lines are appended at once.
const appendLines = 1000

// Run appends.
func (c *journalAppendCmd) Run(e *env) error {
	if c.Key != "" && c.Event == nil {
		return usagef("--key is for one event, given on the command line")
	}
	a := changing
	if c.Create {
		a = creating
	}
	return e.withDB(a, c.Target.target(), func(ctx context.Context, db *osier.DB) error {
		j := osier.NewJournal(c.Target.name)
		if c.Event != nil {
			res, err := j.AppendEvents(ctx, db, []osier.Event{c.event([]byte(*c.Event))}, &osier.AppendOptions{Key: c.Key})
			if err != nil {
				return err
			}
			if e.json {
				return e.printJSON(map[string]any{"position": res.First.String(), "repeated": res.Repeated})
			}
			_, err = fmt.Fprintln(e.stdout, res.First)
			return err
		}
		n, err := c.lines(ctx, e, j, db)
		if err != nil {
			return fmt.Errorf("after %d events: %w", n, err)
		}
		if e.json {
			return e.printJSON(map[string]int{"appended": n})
		}
		_, err = fmt.Fprintf(e.stdout, "appended %d events to %s:%s\n", n, c.Target.db, c.Target.name)
		return err
	})
}

func (c *journalAppendCmd) event(data []byte) osier.Event {
	ev := osier.Event{Type: c.Type, Data: data}
	if c.Expires > 0 {
		ev.Expires = time.Now().Add(c.Expires)
	}
	return ev
}

// lines appends the lines of the standard input, and says how many.
func (c *journalAppendCmd) lines(ctx context.Context, e *env, j *osier.Journal, db *osier.DB) (n int, err error) {
	in := bufio.NewReader(e.stdin)
	var events []osier.Event
	for more := true; more; {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return n, fmt.Errorf("read input: %w", err)
		}
		more = err == nil
		if text := strings.TrimRight(string(line), "\r\n"); more || text != "" {
			events = append(events, c.event([]byte(text)))
		}
		if len(events) == appendLines || !more && len(events) > 0 || len(events) > 0 && in.Buffered() == 0 {
			if _, err := j.AppendEvents(ctx, db, events, nil); err != nil {
				return n, err
			}
			n += len(events)
			events = events[:0]
		}
	}
	return n, nil
}

// place is a position or a time on the command line.
type place struct{ at osier.Position }

// UnmarshalText reads a position, a time or how long ago.
func (p *place) UnmarshalText(text []byte) error {
	s := string(text)
	if at, err := osier.ParsePosition(s); err == nil {
		p.at = at
		return nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		p.at = osier.PositionAt(time.Now().Add(-d))
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return fmt.Errorf("want a position like 1700000000000000-0, a time like 2026-03-01T12:00:00Z, or how long ago, like 90m; not %q", s)
	}
	p.at = osier.PositionAt(t)
	return nil
}

type journalReadCmd struct {
	Target  journalTarget `arg:"" name:"db:journal" help:"The journal."`
	From    place         `help:"Begin at this position, time, or so long ago." placeholder:"PLACE"`
	Until   place         `help:"End before this position, time, or so long ago." placeholder:"PLACE"`
	All     bool          `help:"Begin with the oldest event."`
	Type    []string      `help:"Only events of these types."`
	Reverse bool          `help:"Newest first."`
	Limit   int           `help:"At most so many."`
	Count   bool          `help:"Only count them."`
}

// Run shows events.
func (c *journalReadCmd) Run(e *env) error {
	return e.withJournal(reading, c.Target, func(ctx context.Context, db *osier.DB, j *osier.Journal) error {
		o := &osier.ReadOptions{From: c.From.at, Until: c.Until.at, All: c.All, Types: c.Type, Reverse: c.Reverse, Limit: c.Limit}
		if !c.Count {
			return e.showEvents(j.Read(ctx, db, o), false)
		}
		n, err := j.Count(ctx, db, o)
		if err != nil {
			return err
		}
		if e.json {
			return e.printJSON(map[string]uint64{"count": n})
		}
		_, err = fmt.Fprintln(e.stdout, n)
		return err
	})
}

// withJournal opens the store and a journal that is there.
func (e *env) withJournal(a access, t journalTarget, fn func(context.Context, *osier.DB, *osier.Journal) error) error {
	return e.withDB(a, t.target(), func(ctx context.Context, db *osier.DB) error {
		j := osier.NewJournal(t.name)
		if _, err := j.Info(ctx, db); err != nil {
			if errors.Is(err, osier.ErrNotFound) {
				return &exitError{exitMissing, fmt.Errorf("no journal %s in database %s", t.name, t.db)}
			}
			return err
		}
		return fn(ctx, db, j)
	})
}

type journalTailCmd struct {
	Target journalTarget `arg:"" name:"db:journal" help:"The journal."`
	After  string        `help:"Go on after this position." placeholder:"POSITION"`
	Last   int           `default:"10" help:"Begin with so many of the last events."`
	Type   []string      `help:"Only events of these types."`
	Once   bool          `help:"End at the end of what there is."`
}

// Run follows a journal. Nobody else can append meanwhile, as one process has the
// store open; with --once it is a read that resumes.
func (c *journalTailCmd) Run(e *env) error {
	return e.withJournal(reading, c.Target, func(ctx context.Context, db *osier.DB, j *osier.Journal) error {
		o := &osier.TailOptions{Types: c.Type, Once: c.Once}
		if c.After != "" {
			var err error
			if o.After, err = osier.ParsePosition(c.After); err != nil {
				return err
			}
			return e.showEvents(j.Tail(ctx, db, o), true)
		}
		o.All = true
		for ev, err := range j.Read(ctx, db, &osier.ReadOptions{All: true, Reverse: true, Limit: c.Last + 1, Types: c.Type}) {
			if err != nil {
				return err
			}
			o.After = ev.Position
		}
		if n, err := j.Count(ctx, db, &osier.ReadOptions{All: true, Types: c.Type}); err != nil || n <= uint64(c.Last) {
			o.After = osier.Position{}
			if err != nil {
				return err
			}
		}
		return e.showEvents(j.Tail(ctx, db, o), true)
	})
}

type journalJSON struct {
	Name      string `json:"name"`
	Events    uint64 `json:"events"`
	Appended  uint64 `json:"appended"`
	Bytes     uint64 `json:"bytes"`
	DiskBytes uint64 `json:"diskBytes"`
	Last      string `json:"last"`
	Trimmed   string `json:"trimmed"`
	MaxAge    string `json:"maxAge,omitempty"`
	MaxEvents uint64 `json:"maxEvents,omitempty"`
	MaxBytes  uint64 `json:"maxBytes,omitempty"`
	Window    string `json:"window,omitempty"`
	Level     string `json:"durability,omitempty"`
}

func describeJournal(i *osier.JournalInfo) journalJSON {
	j := journalJSON{Name: i.Name, Events: i.Count, Appended: i.Appended, Bytes: i.Bytes, DiskBytes: i.DiskBytes,
		Last: i.Last.String(), Trimmed: i.Trimmed.String(), MaxEvents: i.Settings.MaxEvents, MaxBytes: i.Settings.MaxBytes,
		Level: levels[i.Settings.Durability]}
	if i.Settings.MaxAge > 0 {
		j.MaxAge = i.Settings.MaxAge.String()
	}
	if i.Settings.Window > 0 {
		j.Window = i.Settings.Window.String()
	}
	return j
}

var levels = [...]string{osier.DurabilityDefault: "", osier.Sync: "sync", osier.Buffered: "buffered", osier.Relaxed: "relaxed"}

type journalInfoCmd struct {
	Target string `arg:"" name:"db[:journal]" help:"The database, or one journal of it."`
}

// Run describes journals.
func (c *journalInfoCmd) Run(e *env) error {
	dbName, name, single := strings.Cut(c.Target, ":")
	return e.withDB(reading, target{db: dbName}, func(ctx context.Context, db *osier.DB) error {
		info, err := db.Info(ctx)
		if err != nil {
			return err
		}
		t := e.table("JOURNAL", ">EVENTS", ">BYTES", ">DISK", "LAST", "KEPT")
		found := false
		for i := range info.Journals {
			j := &info.Journals[i]
			if single && j.Name != name {
				continue
			}
			found = true
			if e.json {
				err = e.printJSON(describeJournal(j))
			} else {
				last := ""
				if !j.Last.IsZero() {
					last = j.Last.String()
				}
				err = t.row(j.Name, e.count(j.Count), e.size(j.Bytes), e.size(j.DiskBytes), last, keptFor(&j.Settings))
			}
			if err != nil {
				return err
			}
		}
		if single && !found {
			return &exitError{exitMissing, fmt.Errorf("no journal %s in database %s", name, dbName)}
		}
		return t.flush()
	})
}

// keptFor says what a journal's retention is.
func keptFor(s *osier.JournalSettings) string {
	var parts []string
	if s.MaxAge > 0 {
		parts = append(parts, s.MaxAge.String())
	}
	if s.MaxEvents > 0 {
		parts = append(parts, strconv.FormatUint(s.MaxEvents, 10)+" events")
	}
	if s.MaxBytes > 0 {
		parts = append(parts, strconv.FormatUint(s.MaxBytes, 10)+" bytes")
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

type journalSetCmd struct {
	Target        journalTarget  `arg:"" name:"db:journal" help:"The journal."`
	MaxAge        *time.Duration `help:"Keep events for so long; 0: for ever."`
	MaxEvents     *uint64        `help:"Keep so many events; 0: all."`
	MaxBytes      *uint64        `help:"Keep so many bytes of events; 0: all."`
	Window        *time.Duration `help:"How far back a read looks that does not say; 0: an hour."`
	MaxEventBytes *uint32        `help:"Refuse larger events; 0: 1 MiB."`
	Durability    *string        `help:"Level of appends that do not say: sync, buffered, relaxed or default." enum:"sync,buffered,relaxed,default"`
}

// Run changes what is given and leaves the rest.
func (c *journalSetCmd) Run(e *env) error {
	return e.withDB(changing, c.Target.target(), func(ctx context.Context, db *osier.DB) error {
		var s osier.JournalSettings
		info, err := osier.NewJournal(c.Target.name).Info(ctx, db)
		switch {
		case err == nil:
			s = info.Settings
		case !errors.Is(err, osier.ErrNotFound):
			return err
		}
		set(&s.MaxAge, c.MaxAge)
		set(&s.MaxEvents, c.MaxEvents)
		set(&s.MaxBytes, c.MaxBytes)
		set(&s.Window, c.Window)
		set(&s.MaxEventBytes, c.MaxEventBytes)
		if c.Durability != nil {
			for level, name := range levels {
				if name == *c.Durability || name == "" && *c.Durability == "default" {
					s.Durability = osier.Durability(level)
				}
			}
		}
		_, err = db.Exec(ctx, &osier.Command{Ops: []osier.Op{{Kind: osier.OpJournal,
			Collection: osier.JournalResource(c.Target.name), Journal: &osier.JournalOp{Settings: &s}}}})
		return err
	})
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

type journalTrimCmd struct {
	Target journalTarget `arg:"" name:"db:journal" help:"The journal."`
	Before place         `arg:"" help:"A position, a time, or how long ago."`
}

// Run trims.
func (c *journalTrimCmd) Run(e *env) error {
	return e.withJournal(changing, c.Target, func(ctx context.Context, db *osier.DB, j *osier.Journal) error {
		return j.Trim(ctx, db, c.Before.at)
	})
}

type journalDropCmd struct {
	Target journalTarget `arg:"" name:"db:journal" help:"The journal."`
	Yes    bool          `help:"Yes, really."`
}

// Run drops.
func (c *journalDropCmd) Run(e *env) error {
	return e.withJournal(changing, c.Target, func(ctx context.Context, db *osier.DB, j *osier.Journal) error {
		info, err := j.Info(ctx, db)
		if err != nil {
			return err
		}
		if !c.Yes {
			return usagef("this would delete %s:%s and its %s for good: add --yes", c.Target.db, c.Target.name, e.counted(info.Count, "event"))
		}
		return j.Drop(ctx, db)
	})
}
