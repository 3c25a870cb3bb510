package engine

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"io"
	"slices"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// rowSorter sorts rows in bounded memory. What does not fit is written in sorted
// runs, one behind the other, into a temporary file. With a limit it keeps no
// more rows than that, and looks at most others once.
type rowSorter struct {
	scratch func() (*store.Scratch, error)
	reverse bool
	limit   int   // 0: none
	bound   int64 // bytes in memory

	rows  []sortRow
	bytes int64
	file  *store.Scratch
	runs  [][2]int64 // from, to
	head  []byte
}

// sortRow is a row: its place in the order, the key of the fields and then the
// id, and the document's record.
type sortRow struct {
	place  []byte
	key    int // length of the key
	record []byte
}

const (
	rowOverhead = 96 // of a row in memory, beside its bytes
	leastSort   = 4 << 10
	runBuffer   = 64 << 10
)

func newRowSorter(e *Engine, reverse bool, limit int, bound int64) *rowSorter {
	if bound <= 0 {
		bound = osier.DefaultSortBytes
	}
	return &rowSorter{scratch: e.store.NewScratch, reverse: reverse, limit: limit, bound: max(bound, leastSort)}
}

func (s *rowSorter) compare(a, b []byte) int {
	if s.reverse {
		a, b = b, a
	}
	return bytes.Compare(a, b)
}

// add copies a row. place is its key and id.
func (s *rowSorter) add(place []byte, key int, record []byte) error {
	if s.limit > 0 && len(s.rows) >= 2*s.limit+64 {
		s.sort()
		s.cut()
	}
	b := make([]byte, len(place)+len(record))
	n := copy(b, place)
	copy(b[n:], record)
	s.rows = append(s.rows, sortRow{b[:n:n], key, b[n:]})
	if s.bytes += int64(len(b)) + rowOverhead; s.bytes < s.bound {
		return nil
	}
	s.sort()
	if s.cut(); s.bytes < s.bound/2 {
		return nil
	}
	return s.spill()
}

func (s *rowSorter) sort() {
	slices.SortFunc(s.rows, func(a, b sortRow) int { return s.compare(a.place, b.place) })
}

// cut drops what is behind the limit.
func (s *rowSorter) cut() {
	if s.limit == 0 || len(s.rows) <= s.limit {
		return
	}
	for _, r := range s.rows[s.limit:] {
		s.bytes -= int64(len(r.place)+len(r.record)) + rowOverhead
	}
	clear(s.rows[s.limit:])
	s.rows = s.rows[:s.limit]
}

// spill writes the rows in memory, which are sorted, as a run.
func (s *rowSorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = s.scratch(); err != nil {
			return err
		}
	}
	from := s.file.Size()
	w := bufio.NewWriterSize(s.file, runBuffer)
	for i := range s.rows {
		r := &s.rows[i]
		s.head = binary.AppendUvarint(s.head[:0], uint64(len(r.place)))
		s.head = binary.AppendUvarint(s.head, uint64(r.key))
		s.head = binary.AppendUvarint(s.head, uint64(len(r.record)))
		_, _ = w.Write(s.head) // the writer keeps its first error
		_, _ = w.Write(r.place)
		_, _ = w.Write(r.record)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.runs = append(s.runs, [2]int64{from, s.file.Size()})
	clear(s.rows)
	s.rows, s.bytes = s.rows[:0], 0
	return nil
}

// spilled is how many bytes were written.
func (s *rowSorter) spilled() uint64 {
	if s.file == nil {
		return 0
	}
	return uint64(s.file.Size())
}

func (s *rowSorter) close() {
	if s.file != nil {
		_ = s.file.Close() // the next opening removes what is left
	}
}

// each calls f with the rows in order until it wants no more. A row is valid
// during the call.
func (s *rowSorter) each(f func(r *sortRow) (more bool, err error)) error {
	s.sort()
	m := &runMerge{compare: s.compare}
	if len(s.rows) > 0 {
		m.runs = append(m.runs, &runReader{rows: s.rows[1:], row: s.rows[0]})
	}
	size := int(min(max(s.bound/int64(len(s.runs)+1), 4<<10), runBuffer))
	for _, at := range s.runs {
		r := &runReader{r: bufio.NewReaderSize(io.NewSectionReader(s.file, at[0], at[1]-at[0]), size)}
		if ok, err := r.next(); err != nil {
			return err
		} else if ok {
			m.runs = append(m.runs, r)
		}
	}
	heap.Init(m)
	for len(m.runs) > 0 {
		first := m.runs[0]
		if more, err := f(&first.row); !more || err != nil {
			return err
		}
		ok, err := first.next()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(m, 0)
		} else {
			heap.Pop(m)
		}
	}
	return nil
}

// runReader reads a run, or the rows in memory.
type runReader struct {
	r    *bufio.Reader // nil: in memory
	rows []sortRow
	row  sortRow
	buf  []byte
}

func (r *runReader) next() (ok bool, err error) {
	if r.r == nil {
		if len(r.rows) == 0 {
			return false, nil
		}
		r.row, r.rows = r.rows[0], r.rows[1:]
		return true, nil
	}
	var sizes [3]uint64
	for i := range sizes {
		if sizes[i], err = binary.ReadUvarint(r.r); err == io.EOF && i == 0 {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	n := int(sizes[0] + sizes[2])
	r.buf = slices.Grow(r.buf[:0], n)[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return false, err
	}
	r.row = sortRow{r.buf[:sizes[0]], int(sizes[1]), r.buf[sizes[0]:]}
	return true, nil
}

// runMerge is a heap of runs by their next rows.
type runMerge struct {
	runs    []*runReader
	compare func(a, b []byte) int
}

// Len implements heap.Interface, as the methods below do.
func (m *runMerge) Len() int { return len(m.runs) }
func (m *runMerge) Less(i, k int) bool {
	return m.compare(m.runs[i].row.place, m.runs[k].row.place) < 0
}
func (m *runMerge) Swap(i, k int) { m.runs[i], m.runs[k] = m.runs[k], m.runs[i] }
func (m *runMerge) Push(x any)    { m.runs = append(m.runs, x.(*runReader)) }

// Pop removes the last.
func (m *runMerge) Pop() any {
	last := len(m.runs) - 1
	r := m.runs[last]
	m.runs = m.runs[:last]
	return r
}
