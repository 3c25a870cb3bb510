package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/osierdb/osier/pocket"
)

// Exit codes of commands; main's comment lists them all.
const (
	pocketExitNotFound = 3
	pocketExitConflict = 4
	pocketExitDamaged  = 5
)

// pocketCmd works on the single-file stores of package pocket.
type pocketCmd struct {
	Get     pocketGetCmd     `cmd:"" help:"Print the value under a key; also beside a writer."`
	Set     pocketSetCmd     `cmd:"" help:"Save or delete a record."`
	Prefix  pocketPrefixCmd  `cmd:"" help:"List the records whose keys begin with a prefix; also beside a writer."`
	Verify  pocketVerifyCmd  `cmd:"" help:"Check every line of a file; exits with 5 when it is damaged."`
	Repair  pocketRepairCmd  `cmd:"" help:"Save every whole record of a damaged file, and list what is lost."`
	Stats   pocketStatsCmd   `cmd:"" help:"Print the figures of a file; also beside a writer."`
	Rewrite pocketRewriteCmd `cmd:"" help:"Rewrite a file without its dead lines."`
}

// pocketExit gives an error of package pocket its exit code.
func pocketExit(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pocket.ErrNotFound):
		return &exitError{pocketExitNotFound, err}
	case errors.Is(err, pocket.ErrConflict):
		return &exitError{pocketExitConflict, err}
	case errors.Is(err, pocket.ErrDamaged):
		return &exitError{pocketExitDamaged, err}
	}
	return err
}

// readPocket calls f with a store that is open for reading.
func readPocket(e *env, file string, f func(*pocket.Store) error) error {
	return usePocket(e, file, &pocket.Options{ReadOnly: true, Poll: -1}, f)
}

func usePocket(e *env, file string, o *pocket.Options, f func(*pocket.Store) error) error {
	s, err := pocket.Open(file, o)
	if err != nil {
		return err
	}
	err = pocketExit(f(s))
	// What was asked for is done by now or not: an interrupt must not keep
	// the file from being closed properly.
	if cerr := s.Close(context.WithoutCancel(e.ctx)); err == nil {
		err = cerr
	}
	return err
}

// pocketRecord is a record for programs.
type pocketRecord struct {
	Key     string          `json:"key"`
	Type    string          `json:"type,omitempty"`
	Version uint64          `json:"version"`
	Expires *time.Time      `json:"expires,omitempty"`
	Value   json.RawMessage `json:"value"`
}

func newPocketRecord(r pocket.Record) pocketRecord {
	out := pocketRecord{Key: r.Key(), Type: r.Type(), Version: uint64(r.Version()), Value: json.RawMessage(r.JSON())}
	if t := r.Expires(); !t.IsZero() {
		out.Expires = &t
	}
	return out
}

// pocketText is a value for people: texts without their quotes.
func pocketText(r pocket.Record) string {
	if s, err := pocket.ValueOf[string](r); err == nil && r.Type() == "" {
		return s
	}
	return r.JSON()
}

type pocketGetCmd struct {
	File string `arg:"" help:"The pocket file." type:"existingfile"`
	Key  string `arg:"" help:"The key."`
}

// Run prints the value.
func (c *pocketGetCmd) Run(e *env, root *cli) error {
	return readPocket(e, c.File, func(s *pocket.Store) error {
		r, err := pocket.Get[pocket.Record](s, c.Key)
		if err != nil {
			return fmt.Errorf("key %q: %w", c.Key, err)
		}
		if root.JSON {
			return json.NewEncoder(e.stdout).Encode(newPocketRecord(r))
		}
		_, err = fmt.Fprintln(e.stdout, pocketText(r))
		return err
	})
}

type pocketSetCmd struct {
	File      string        `arg:"" help:"The pocket file; made if it is not there." type:"path"`
	Key       string        `arg:"" help:"The key."`
	Value     string        `arg:"" optional:"" help:"The value, a text; - reads it from standard input."`
	Raw       bool          `help:"The value is a JSON text, number or boolean."`
	Type      string        `help:"The value is JSON of the type with this name."`
	TTL       time.Duration `name:"ttl" help:"How long the record lives; 0 for ever."`
	IfVersion uint64        `help:"Only if the record has this version." xor:"if"`
	IfAbsent  bool          `help:"Only if there is no record." xor:"if"`
	Delete    bool          `help:"Delete the record instead."`
}

// Run saves or deletes.
func (c *pocketSetCmd) Run(e *env, root *cli) error {
	change := pocket.Change{Key: c.Key}
	switch {
	case c.Delete && c.Value != "":
		return &exitError{2, errors.New("a value and --delete")}
	case c.TTL < 0:
		return &exitError{2, fmt.Errorf("--ttl %v is negative", c.TTL)}
	case c.IfAbsent:
		change.If = pocket.Absent()
	case c.IfVersion != 0:
		change.If = pocket.At(pocket.Version(c.IfVersion))
	}
	if !c.Delete {
		if c.Value == "-" {
			b, err := io.ReadAll(io.LimitReader(e.stdin, pocket.MaxValueBytes+1))
			if err != nil {
				return fmt.Errorf("read value: %w", err)
			}
			c.Value = string(b)
		}
		change.Value = c.Value
		if c.Raw || c.Type != "" {
			change.Value = pocket.Raw{Type: c.Type, JSON: c.Value}
		}
		if c.TTL > 0 {
			change.Expires = time.Now().Add(c.TTL)
		}
	}
	return usePocket(e, c.File, nil, func(s *pocket.Store) error {
		v, err := s.SaveAll(change)
		if err != nil {
			return err
		}
		if root.JSON {
			return json.NewEncoder(e.stdout).Encode(struct {
				Version uint64 `json:"version"`
			}{uint64(v)})
		}
		return nil
	})
}

type pocketPrefixCmd struct {
	File    string `arg:"" help:"The pocket file." type:"existingfile"`
	Prefix  string `arg:"" optional:"" help:"The prefix; all records without it."`
	Limit   int    `help:"Print at most so many; 0 for all."`
	Keys    bool   `help:"Print only keys."`
	Reverse bool   `help:"From the last key to the first."`
}

// Run lists the records.
func (c *pocketPrefixCmd) Run(e *env, root *cli) error {
	return readPocket(e, c.File, func(s *pocket.Store) error {
		rows := pocket.Prefix[pocket.Record](s, c.Prefix)
		if c.Reverse {
			rows = pocket.Reverse[pocket.Record](s, pocket.WithPrefix(c.Prefix))
		}
		n := 0
		enc := json.NewEncoder(e.stdout)
		for key, r := range rows {
			if n++; c.Limit > 0 && n > c.Limit || e.ctx.Err() != nil {
				break
			}
			var err error
			switch {
			case root.JSON:
				err = enc.Encode(newPocketRecord(r))
			case c.Keys:
				_, err = fmt.Fprintln(e.stdout, key)
			default:
				_, err = fmt.Fprintf(e.stdout, "%s\t%s\n", key, pocketText(r))
			}
			if err != nil {
				return err
			}
		}
		return e.ctx.Err()
	})
}

// printPocketReport prints what was found in a file.
func printPocketReport(w io.Writer, r pocket.Report) {
	fmt.Fprintf(w, "%d records in %d lines, %d bytes\n", r.Records, r.Lines, r.Bytes)
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "line %d skipped: %s: %q\n", s.Line, s.Reason, s.Text)
	}
	if more := r.SkippedCount - len(r.Skipped); more > 0 {
		fmt.Fprintf(w, "and %d more lines skipped\n", more)
	}
	for _, line := range r.Edited {
		fmt.Fprintf(w, "line %d: the records behind it were changed by hand or by damage\n", line)
	}
	if r.Cut != nil {
		fmt.Fprintf(w, "line %d: %s; %d bytes at offset %d do not count\n", r.Cut.Line, r.Cut.Reason, r.Cut.Bytes, r.Cut.Offset)
	}
}

type pocketVerifyCmd struct {
	File string `arg:"" help:"The pocket file." type:"existingfile"`
}

// Run checks the file.
func (c *pocketVerifyCmd) Run(e *env, root *cli) error {
	r, err := pocket.Verify(c.File)
	if err != nil {
		return pocketExit(err)
	}
	if root.JSON {
		err = json.NewEncoder(e.stdout).Encode(r)
	} else {
		printPocketReport(e.stdout, r)
	}
	if err != nil {
		return err
	}
	if !r.Clean() {
		return &exitError{pocketExitDamaged, fmt.Errorf("%s is damaged", c.File)}
	}
	return nil
}

type pocketRepairCmd struct {
	File string `arg:"" help:"The pocket file." type:"existingfile"`
}

// Run repairs the file.
func (c *pocketRepairCmd) Run(e *env, root *cli) error {
	r, err := pocket.RepairFile(e.ctx, c.File)
	if err != nil {
		return pocketExit(err)
	}
	if root.JSON {
		return json.NewEncoder(e.stdout).Encode(r)
	}
	printPocketReport(e.stdout, r.Report)
	if r.Damaged == "" {
		_, err = fmt.Fprintln(e.stdout, "nothing to repair")
	} else {
		_, err = fmt.Fprintf(e.stdout, "repaired; the damaged file is kept as %s\n", r.Damaged)
	}
	return err
}

type pocketStatsCmd struct {
	File string `arg:"" help:"The pocket file." type:"existingfile"`
}

// Run prints the figures.
func (c *pocketStatsCmd) Run(e *env, root *cli) error {
	return readPocket(e, c.File, func(s *pocket.Store) error {
		st := s.Stats()
		if root.JSON {
			return json.NewEncoder(e.stdout).Encode(st)
		}
		w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "records\t%d\n", st.Records)
		fmt.Fprintf(w, "of them expiring\t%d\n", st.Expiring)
		fmt.Fprintf(w, "dead records\t%d\n", st.DeadRecords)
		fmt.Fprintf(w, "version\t%d\n", st.Version)
		fmt.Fprintf(w, "file bytes\t%d\n", st.FileBytes)
		fmt.Fprintf(w, "live bytes\t%d\n", st.LiveBytes)
		fmt.Fprintf(w, "dead bytes\t%d\n", st.DeadBytes)
		fmt.Fprintf(w, "memory bytes\t%d\n", st.MemoryBytes)
		fmt.Fprintf(w, "load time\t%v\n", st.LoadTime.Round(time.Microsecond))
		return w.Flush()
	})
}

type pocketRewriteCmd struct {
	File     string `arg:"" help:"The pocket file." type:"existingfile"`
	Compress bool   `help:"Compress the records; the file can then not be read as text."`
}

// Run rewrites the file.
func (c *pocketRewriteCmd) Run(e *env, root *cli) error {
	o := &pocket.Options{Compress: c.Compress, RewriteRatio: -1}
	return usePocket(e, c.File, o, func(s *pocket.Store) error {
		before := s.Stats().FileBytes
		if err := s.Rewrite(e.ctx); err != nil {
			return err
		}
		after := s.Stats().FileBytes
		if root.JSON {
			return json.NewEncoder(e.stdout).Encode(struct {
				Before int64 `json:"before"`
				After  int64 `json:"after"`
			}{before, after})
		}
		_, err := fmt.Fprintf(e.stdout, "%d bytes, %d before\n", after, before)
		return err
	})
}
