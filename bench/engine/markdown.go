package engine

import (
	"fmt"
	"io"
	"strings"
)

// WriteVerdicts prints the bars as a Markdown table.
func WriteVerdicts(w io.Writer, vs []Verdict) {
	fmt.Fprint(w, "| bar | measured | |\n|---|---|---|\n")
	for _, v := range vs {
		fmt.Fprintf(w, "| %s | %s | %v |\n", v.Bar, v.Got, v)
	}
	fmt.Fprintln(w)
}

// WriteFigures prints every figure: Osier's with its allocations an operation,
// the peers' with how many times as long they take as osier-binary.
func WriteFigures(w io.Writer, out []Outcome) {
	fmt.Fprint(w, "| workload | unit |")
	rule := "|---|---|"
	for _, c := range Contenders() {
		fmt.Fprintf(w, " %s |", c.Name)
		rule += "---|"
	}
	fmt.Fprintf(w, " disk floor, us |\n%s---|\n", rule)
	for i := range out {
		o := &out[i]
		fmt.Fprintf(w, "| %v | %s |", o.Workload, o.Workload.Unit())
		for _, c := range Contenders() {
			fmt.Fprintf(w, " %s |", o.cell(c))
		}
		if f := o.FloorMicros(); f > 0 {
			fmt.Fprintf(w, " %.0f |\n", f)
		} else {
			fmt.Fprint(w, " |\n")
		}
	}
}

func (o *Outcome) cell(c Contender) string {
	f := o.Figure(c.Name)
	switch {
	case f == 0:
		return "-"
	case c.Own:
		return fmt.Sprintf("%s (%.0f allocs, %s B)", short(f), o.Allocs(c.Name), short(o.AllocBytes(c.Name)))
	}
	return fmt.Sprintf("%s (%sx)", short(f), short(o.Ratio(c.Name, OsierBinary)))
}

// short prints three digits.
func short(f float64) string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.3gM", f/1e6)
	case f >= 1000:
		return fmt.Sprintf("%.0f", f)
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	}
	s := fmt.Sprintf("%.3g", f)
	if strings.Contains(s, "e") {
		return fmt.Sprintf("%.4f", f)
	}
	return s
}
