package peers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// rocks drives the C++ program of the folder rocksdb: a line is a command, a
// line of JSON its answer. The program keeps the time.
type rocks struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// RocksProgram is where the program is: OSIER_BENCH_ROCKSDB, or where the
// Makefile puts it.
func RocksProgram() string {
	if p := os.Getenv("OSIER_BENCH_ROCKSDB"); p != "" {
		return p
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "rocksdb", "rocks")
}

// OpenRocksDB opens RocksDB with the same memtable, filters, blocks and cache
// as Pebble.
func OpenRocksDB(dir string, level Level) (Subject, error) {
	path := RocksProgram()
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: RocksDB's program is not built (%s): install librocksdb-dev and run make -C peers/rocksdb", ErrAbsent, path)
	}
	s := &rocks{cmd: exec.Command(path)}
	s.cmd.Stderr = os.Stderr
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := s.ask("open %q %d %d", dir, CacheBytes, level); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ask sends a command and waits for its answer.
func (s *rocks) ask(format string, args ...any) (Sample, error) {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		return Sample{}, fmt.Errorf("rocksdb: %w", err)
	}
	if !s.out.Scan() {
		return Sample{}, errors.Join(errors.New("rocksdb: the program ended"), s.out.Err())
	}
	var a struct {
		Error     string
		Ops, Rows int
		Ns, Cpu   int64
	}
	if err := json.Unmarshal(s.out.Bytes(), &a); err != nil {
		return Sample{}, fmt.Errorf("rocksdb: answer %q: %w", s.out.Text(), err)
	}
	if a.Error != "" {
		return Sample{}, errors.New("rocksdb: " + a.Error)
	}
	return Sample{Ops: a.Ops, Rows: a.Rows, Elapsed: time.Duration(a.Ns), CPU: time.Duration(a.Cpu)}, nil
}

func (s *rocks) Insert(sh Shape, id int64, batch, txs int) (Sample, error) {
	return s.ask("insert %d %d %d %d %d", sh.Min, sh.Max, id, batch, txs)
}

func (s *rocks) Commit(sh Shape, id int64, writers, each int) (Sample, error) {
	return s.ask("commit %d %d %d %d %d", sh.Min, sh.Max, id, writers, each)
}

func (s *rocks) Get(sh Shape, n int64, k, reads int, seed uint64) (Sample, error) {
	return s.ask("get %d %d %d %d %d %d", sh.Min, sh.Max, n, k, reads, seed)
}

func (s *rocks) Scan(sh Shape, n int64, k, reads int, seed uint64) (Sample, error) {
	return s.ask("scan %d %d %d %d %d %d", sh.Min, sh.Max, n, k, reads, seed)
}

func (s *rocks) Settle() error {
	_, err := s.ask("settle")
	return err
}

// Close ends the program, which closes its store.
func (s *rocks) Close() error {
	s.in.Close()
	return s.cmd.Wait()
}
