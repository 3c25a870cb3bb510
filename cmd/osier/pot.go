package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/osierdb/osier/pot"
)

// potCmd works on pot payloads in files, without a store.
type potCmd struct {
	Decode  potDecodeCmd  `cmd:"" help:"Show a pot payload as JSON, CBOR or notation."`
	Encode  potEncodeCmd  `cmd:"" help:"Make a pot payload of JSON or CBOR."`
	Explain potExplainCmd `cmd:"" help:"Explain every byte of a pot payload."`
}

// potInput says where a payload is and how to read it.
type potInput struct {
	File     string `arg:"" optional:"" default:"-" help:"File to read; - is standard input."`
	Table    string `placeholder:"FILE" help:"Serialized table of symbols and shapes that the payload refers to."`
	NoHeader bool   `help:"The payload has no header and is of mode --mode."`
	Mode     string `enum:"v4,full,shapes" default:"v4" help:"Mode of payloads without a header: v4, full or shapes."`
}

type potDecodeCmd struct {
	potInput
	To      string `enum:"json,cbor,notation" default:"json" help:"Format to write: json, cbor or notation."`
	Lossy   bool   `help:"Write what JSON cannot hold as the nearest that it can."`
	Compact bool   `help:"One line without spaces."`
}

type potEncodeCmd struct {
	File      string `arg:"" optional:"" default:"-" help:"File to read; - is standard input."`
	From      string `enum:"json,cbor" default:"json" help:"Format to read: json or cbor."`
	Mode      string `enum:"v4,full,shapes" default:"v4" help:"Mode to write: v4, full or shapes."`
	NoHeader  bool   `help:"Leave out the four bytes of the header."`
	Canonical bool   `help:"Write the one canonical form of the value."`
	Table     string `placeholder:"FILE" help:"Serialized table to use; it is made, or brought up to date, in place."`
}

type potExplainCmd struct {
	potInput
}

var potModes = map[string]pot.Mode{"v4": pot.V4, "full": pot.Full, "shapes": pot.Shapes}

// read returns the payload and the options to read it with.
func (in *potInput) read(e *env) ([]byte, *pot.DecodeOptions, error) {
	opts := &pot.DecodeOptions{NoHeader: in.NoHeader, Mode: potModes[in.Mode]}
	if in.Table != "" {
		table, err := readPotTable(in.Table)
		if err != nil {
			return nil, nil, err
		}
		opts.Table = table
	}
	data, err := readPotFile(e, in.File)
	return data, opts, err
}

// readPotFile reads a file whole; - is standard input.
func readPotFile(e *env, name string) ([]byte, error) {
	if name == "-" {
		data, err := io.ReadAll(e.stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitMissing, fmt.Errorf("read payload: %w", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("read payload: %w", err)
	}
	return data, nil
}

func readPotTable(name string) (*pot.Table, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{exitMissing, fmt.Errorf("read table: %w", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	table := pot.NewTable(nil)
	if err := table.Apply(data); err != nil {
		return nil, &exitError{exitDamage, fmt.Errorf("read table %s: %w", name, err)}
	}
	return table, nil
}

func (c *potDecodeCmd) Run(e *env) error {
	payload, opts, err := c.read(e)
	if err != nil {
		return err
	}
	indent := "  "
	if c.Compact {
		indent = ""
	}
	var out []byte
	switch c.To {
	case "cbor":
		out, err = pot.ToCBOR(nil, payload, opts)
	case "notation":
		out, err = pot.Format(nil, payload, indent, opts)
	default:
		out, err = pot.ToJSON(nil, payload, &pot.JSONOptions{DecodeOptions: *opts, Lossy: c.Lossy, Indent: indent})
	}
	if err != nil {
		return fmt.Errorf("decode payload: %w", err)
	}
	if c.To != "cbor" {
		out = append(out, '\n')
	}
	_, err = e.stdout.Write(out)
	return err
}

func (c *potEncodeCmd) Run(e *env) error {
	opts := &pot.EncodeOptions{Mode: potModes[c.Mode], NoHeader: c.NoHeader, Canonical: c.Canonical}
	if c.Canonical && (c.Table != "" || c.NoHeader || opts.Mode != pot.V4) {
		return usagef("--canonical excludes --table, --no-header and other modes than v4")
	}
	if c.Table != "" {
		table, err := readPotTable(c.Table)
		if errors.Is(err, fs.ErrNotExist) {
			// One value is no sample to wait in: its names go into the table at once.
			table, err = pot.NewTable(&pot.TableOptions{Eager: true}), nil
		} else if err == nil {
			eager := pot.NewTable(&pot.TableOptions{Eager: true})
			err = eager.Merge(table)
			table = eager
		}
		if err != nil {
			return err
		}
		opts.Table = table
	}
	data, err := readPotFile(e, c.File)
	if err != nil {
		return err
	}
	from := pot.FromJSON
	if c.From == "cbor" {
		from = pot.FromCBOR
	}
	payload, err := from(nil, data, opts)
	if err != nil {
		return fmt.Errorf("encode %s: %w", c.From, err)
	}
	if c.Table != "" { // before the payload, which cannot be read without it
		if err := writePotTable(c.Table, opts.Table); err != nil {
			return err
		}
	}
	_, err = e.stdout.Write(payload)
	return err
}

// writePotTable replaces the file in one step, so that it is never half written.
func writePotTable(name string, table *pot.Table) error {
	data, err := table.MarshalBinary()
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error says more
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// potExplanation is what explain prints for programs.
type potExplanation struct {
	Lines []string `json:"lines"`
	Error string   `json:"error,omitempty"`
}

func (c *potExplainCmd) Run(e *env) error {
	payload, opts, err := c.read(e)
	if err != nil {
		return err
	}
	out, err := pot.Explain(nil, payload, opts)
	if e.json {
		x := potExplanation{Lines: []string{}}
		for line := range bytes.Lines(out) {
			x.Lines = append(x.Lines, string(bytes.TrimSuffix(line, []byte("\n"))))
		}
		if err != nil {
			x.Error = err.Error()
			x.Lines = x.Lines[:max(len(x.Lines)-1, 0)] // the last one is the error
		}
		if out, _ = json.Marshal(x); out != nil {
			out = append(out, '\n')
		}
	}
	if _, werr := e.stdout.Write(out); werr != nil {
		return werr
	}
	if err != nil {
		return &exitError{exitDamage, fmt.Errorf("explain payload: %w", err)}
	}
	return nil
}
