package pocket

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/andybalholm/brotli"
)

// packBytes is how much text is gathered for one compressed stream.
const packBytes = 42_500

// blockBytes is about how much a block holds. Small blocks keep a report of
// damage, and of what has been edited, close to its place.
const blockBytes = 64 << 10

// image writes the file that a snapshot makes: header, blocks, then the lines
// that were not understood.
type image struct {
	w        io.Writer
	s        *Store
	st       *state
	compress bool
	creation time.Time
	rewrite  time.Time
	foreign  [][]byte

	n     int64 // bytes written
	plain int64 // of lines, before compression
	count int   // records written
}

func (im *image) write(b []byte) error {
	n, err := im.w.Write(b)
	im.n += int64(n)
	return err
}

func (im *image) run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	head := appendHeader(nil, im.creation, im.rewrite)
	if !im.compress {
		if err := im.write(append(head, "null}\n"...)); err != nil {
			return err
		}
		if err := im.blocks(ctx); err != nil {
			return err
		}
	} else {
		if err := im.write(append(head, '[')); err != nil {
			return err
		}
		if err := im.packed(ctx); err != nil {
			return err
		}
		if err := im.write([]byte("]}\n")); err != nil {
			return err
		}
	}
	var rest []byte
	for _, l := range im.foreign {
		rest = append(append(rest, l...), '\n')
	}
	im.plain += int64(len(rest))
	// The sequence must not fall back to that of the newest record that is
	// still there: versions are never given out twice.
	mark := appendControl(nil, control{seq: im.st.seq, synced: im.st.seq}, nil)
	im.plain += int64(len(mark))
	return im.write(append(rest, mark...))
}

// lines calls flush with runs of record lines of about size bytes.
func (im *image) lines(ctx context.Context, size int, version uint64, flush func(lines []byte, n int) error) error {
	var buf []byte
	var err error
	n := 0
	for r := range Records(&Snapshot{im.s, im.st}, All()) {
		v := r.r.version()
		if v == version {
			v = 0
		}
		buf = appendRecord(buf, r.Key(), r.Type(), r.JSON(), v, r.r.expiry())
		n++
		im.count++
		if len(buf) < size {
			continue
		}
		if err = ctx.Err(); err != nil {
			return err
		}
		im.plain += int64(len(buf))
		if err = flush(buf, n); err != nil {
			return err
		}
		buf, n = buf[:0], 0
	}
	if n == 0 {
		return nil
	}
	im.plain += int64(len(buf))
	return flush(buf, n)
}

func (im *image) blocks(ctx context.Context) error {
	var head []byte
	return im.lines(ctx, blockBytes, im.st.seq, func(lines []byte, n int) error {
		head = appendControl(head[:0], control{block: true, seq: im.st.seq, n: n}, lines)
		im.plain += int64(len(head))
		if err := im.write(head); err != nil {
			return err
		}
		return im.write(lines)
	})
}

func (im *image) packed(ctx context.Context) error {
	var packed bytes.Buffer
	var text []byte
	bw := brotli.NewWriterLevel(&packed, 5)
	first := true
	return im.lines(ctx, packBytes, 0, func(lines []byte, _ int) error {
		packed.Reset()
		bw.Reset(&packed)
		if _, err := bw.Write(lines); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
		if err := bw.Close(); err != nil {
			return fmt.Errorf("compress: %w", err)
		}
		text = text[:0]
		if !first {
			text = append(text, ',')
		}
		first = false
		text = append(text, '"')
		text = base64.StdEncoding.AppendEncode(text, packed.Bytes())
		return im.write(append(text, '"'))
	})
}

// fileWriter writes to a file from its beginning on, in large pieces.
type fileWriter struct {
	f   file
	at  int64
	buf []byte
}

func (w *fileWriter) Write(b []byte) (int, error) {
	w.buf = append(w.buf, b...)
	if len(w.buf) >= 1<<20 {
		return len(b), w.flush()
	}
	return len(b), nil
}

func (w *fileWriter) flush() error {
	_, err := w.f.WriteAt(w.buf, w.at)
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
	return err
}

// worthRewriting needs mu.
func (s *Store) worthRewriting() bool {
	dead := s.plainBytes - s.liveBytes
	return s.opts.RewriteRatio >= 0 && s.shadow == nil && dead >= s.opts.RewriteMinBytes &&
		float64(dead) > s.opts.RewriteRatio*float64(s.plainBytes)
}

func (s *Store) rewriteLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake.rewrite:
		}
		s.mu.Lock()
		worth := s.worthRewriting() && s.writable() == nil
		s.mu.Unlock()
		if !worth {
			continue
		}
		if err := s.Rewrite(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			s.opts.OnError(err)
			// The next commit would ask again at once.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
		}
	}
}

// Rewrite replaces the file by one without dead bytes, while reads and writes
// go on. It returns when the new file is in its place and on the disk. With an
// error, the ctx's for instance, the old file stays as it is.
func (s *Store) Rewrite(ctx context.Context) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	if err := s.rewrite(ctx); err != nil {
		s.stats.rewriteFailed.Add(1)
		return fmt.Errorf("pocket: rewrite: %w", err)
	}
	s.stats.rewrites.Add(1)
	return nil
}

// rewriter is a rewrite under way.
type rewriter struct {
	s    *Store
	f    file
	out  fileWriter
	im   image
	from int64 // of the old file, up to which everything is in the new one
	// What the old file's accounts were when the snapshot was taken.
	plainBytes int64
	linesThen  int64
	pause      time.Duration
}

func (s *Store) rewrite(ctx context.Context) error {
	rw := &rewriter{s: s}
	if err := rw.begin(); err != nil {
		return err
	}
	err := rw.im.run(ctx)
	if err == nil {
		err = rw.out.flush()
	}
	if err == nil {
		err = rw.catchUp(ctx)
	}
	if err != nil {
		return errors.Join(err, rw.abandon())
	}
	if err := rw.join(); err != nil {
		return errors.Join(err, rw.abandon())
	}
	return rw.replace()
}

// begin takes the snapshot and makes the new file.
func (rw *rewriter) begin() error {
	s := rw.s
	s.mu.Lock()
	began := time.Now()
	err := s.writable()
	_, st := s.view()
	rw.from, rw.plainBytes = s.tail.end(), s.plainBytes
	rw.linesThen = s.lines + s.stats.saved.Load()
	rw.im = image{s: s, st: st, compress: s.opts.Compress, creation: s.creation, rewrite: time.Now(), foreign: s.foreign}
	if rw.im.creation.IsZero() {
		rw.im.creation = rw.im.rewrite // a file without header
	}
	rw.pause = time.Since(began)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	mode := fileMode
	if fi, err := s.fs.stat(s.path); err == nil {
		mode = fi.Mode().Perm()
	}
	f, err := s.fs.open(rewritePath(s.path), os.O_RDWR|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	rw.f = f
	rw.out = fileWriter{f: f}
	rw.im.w = &rw.out
	return nil
}

// joinBytes is how much may be left to copy while commits have to wait.
const joinBytes = 64 << 10

// catchUp copies what was committed since, until little is left, and flushes.
func (rw *rewriter) catchUp(ctx context.Context) error {
	for round := 0; ; round++ {
		rw.s.mu.Lock()
		end := rw.s.tail.end()
		rw.s.mu.Unlock()
		// A writer faster than the disk must not keep the rewrite for ever.
		if end-rw.from <= joinBytes && round > 0 || round > 100 {
			return nil
		}
		for rw.from < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := rw.copy(min(end, rw.from+1<<20)); err != nil {
				return err
			}
		}
		if err := rw.out.flush(); err != nil {
			return err
		}
		// Most is flushed here, so that the flush before the rename, during
		// which every commit is written twice, is a short one.
		if err := rw.f.Sync(); err != nil {
			return fmt.Errorf("flush: %w", err)
		}
	}
}

func (rw *rewriter) copy(to int64) error {
	b := make([]byte, to-rw.from)
	if _, err := rw.s.file.ReadAt(b, rw.from); err != nil {
		return fmt.Errorf("copy tail: %w", err)
	}
	rw.from = to
	_, err := rw.out.Write(b)
	return err
}

// join lets every commit go to both files from now on.
func (rw *rewriter) join() error {
	s := rw.s
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if err := s.writable(); err != nil {
		return err
	}
	if end := s.tail.end(); rw.from < end {
		if err := rw.copy(end); err != nil {
			return err
		}
	}
	if err := rw.out.flush(); err != nil {
		return err
	}
	s.shadow = &plainTail{f: rw.f, at: rw.out.at}
	rw.pause += time.Since(began)
	return nil
}

// replace flushes the new file, puts it into place and makes it the store's.
func (rw *rewriter) replace() error {
	s := rw.s
	if err := rw.f.Sync(); err != nil {
		return rw.giveUp(err)
	}
	if !s.fs.replacesOpen() {
		return rw.replaceClosed()
	}
	if err := s.fs.rename(rewritePath(s.path), s.path); err != nil {
		return rw.giveUp(err)
	}
	// From here on the new file is what the next Open may find.
	dirErr := s.fs.syncDir(dirOf(s.path))
	s.flushing.Lock() // nobody flushes the old file any more
	defer s.flushing.Unlock()
	s.mu.Lock()
	began := time.Now()
	old, oldTail := s.file, s.tail
	dirErr = rw.adopt(rw.f, dirErr)
	rw.done(time.Since(began))
	s.mu.Unlock()
	// Nothing that happens to the old file matters now.
	oldTail.finish()
	old.Close()
	return dirErr
}

// replaceClosed is replace for systems that rename neither an open file nor
// over one: both are closed meanwhile, and commits wait for the renaming. At
// each step one of the files is whole under the store's name, as ever.
func (rw *rewriter) replaceClosed() error {
	s := rw.s
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	end := s.tail.end()
	err := errors.Join(s.tail.finish(), s.file.Close(), rw.f.Close())
	if err == nil {
		err = s.fs.rename(rewritePath(s.path), s.path)
	}
	var dirErr error
	if err == nil {
		dirErr = s.fs.syncDir(dirOf(s.path))
	}
	f, openErr := s.fs.open(s.path, os.O_RDWR, fileMode)
	if openErr != nil {
		s.file, s.shadow = nil, nil
		return errors.Join(err, s.fail("open again", openErr))
	}
	if err != nil {
		s.shadow, s.file, s.tail = nil, f, s.newTail(f, end)
		return errors.Join(err, s.fs.remove(rewritePath(s.path)))
	}
	dirErr = rw.adopt(f, dirErr)
	rw.done(time.Since(began))
	return dirErr
}

// adopt makes f, which is the new file, the store's. Needs mu.
func (rw *rewriter) adopt(f file, dirErr error) error {
	s := rw.s
	s.file, s.tail, s.shadow = f, s.newTail(f, s.shadow.end()), nil
	s.stated = 0 // the new file does not tell yet
	s.plainBytes += rw.im.plain - rw.plainBytes
	s.lines += int64(rw.im.count) - rw.linesThen
	s.creation, s.lastRewrite = rw.im.creation, rw.im.rewrite
	if dirErr != nil {
		return s.fail("flush folder", dirErr)
	}
	return nil
}

// done does the accounts. pause is how long commits have waited at last.
func (rw *rewriter) done(pause time.Duration) {
	rw.s.stats.rewritePause.Store(int64(rw.pause + pause))
	rw.s.stats.bytesRewritten.Add(rw.im.n)
}

// giveUp goes on with the old file.
func (rw *rewriter) giveUp(err error) error {
	rw.s.mu.Lock()
	rw.s.shadow = nil
	rw.s.mu.Unlock()
	return errors.Join(err, rw.abandon())
}

// abandon removes an unfinished file.
func (rw *rewriter) abandon() error {
	err := rw.f.Close()
	return errors.Join(err, rw.s.fs.remove(rewritePath(rw.s.path)))
}
