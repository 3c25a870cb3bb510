package pocket

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// FuzzLoad opens any bytes as a file. That must not panic, and what is
// reported as used must stay the same when it is written and read again.
func FuzzLoad(f *testing.F) {
	for _, s := range fuzzSeeds(f) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		disk := newCrashFS()
		file, err := disk.open("/x/f", 0x40, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 0 {
			if _, err := file.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
		}
		o := &Options{Durability: Cached, RewriteRatio: -1, fs: disk, maxExpanded: 1 << 20}
		s, err := Open("/x/f", o)
		if err != nil {
			return // only a compressed part that is too large
		}
		check(t, s)
		want := dump(s)
		if err := s.Save("\U0010fffe", "fuzz"); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete("\U0010fffe"); err != nil {
			t.Fatal(err)
		}
		again := &Options{Durability: Cached, RewriteRatio: -1, fs: disk.kill(), maxExpanded: 1 << 20}
		s2, err := Open("/x/f", again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte(`"expires"`)) {
			wantSame(t, "opened again", dump(s2), want)
		}
		if err := s2.Rewrite(context.Background()); err != nil {
			t.Fatal(err)
		}
		s3, err := Open("/x/f", &Options{Durability: Cached, RewriteRatio: -1, fs: again.fs.(*crashFS).kill(), maxExpanded: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte(`"expires"`)) {
			wantSame(t, "rewritten", dump(s3), want)
		}
		for _, x := range []*Store{s, s2, s3} {
			mustClose(t, x)
		}
	})
}

// FuzzDamage damages a good file in one place. Everything before the damage
// must be there.
func FuzzDamage(f *testing.F) {
	good := goodFile(f)
	f.Add(uint32(300), []byte("\x00"))
	f.Add(uint32(500), []byte("XXXXXXXXX\n"))
	f.Add(uint32(90), bytes.Repeat([]byte{0}, 200))
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		if len(with) == 0 {
			return
		}
		pos := int(at) % len(good)
		data := append([]byte(nil), good...)
		n := copy(data[pos:], with)
		for _, mode := range []loadMode{modeOpen, modeVerify, modeRepair} {
			s := newStore("", mustDefaults(t), mustRegistry(t))
			s.mode = mode
			if _, err := s.loadBytes(data); err != nil {
				t.Fatal(err)
			}
			// Transactions that end before the damage, and those in it if it
			// changed nothing.
			whole := good[:pos]
			if bytes.Equal(good[pos:pos+n], data[pos:pos+n]) {
				whole = good
			}
			last := -1
			for i := range 40 {
				if bytes.Contains(whole, fmt.Appendf(nil, "{\"key\":\"end%d\",\"val\":true}\n", i)) {
					last = i
				}
			}
			for i := range last + 1 {
				if bytes.Count(data, fmt.Appendf(nil, `"key":"k%d"`, i)) > 1 {
					continue // the damage made a later record of that key, as an editor may
				}
				v, err := Get[int](s, fmt.Sprint("k", i))
				if err != nil || v != i {
					t.Fatalf("mode %d, damage at %d: record %d before it: %d, %v", mode, pos, i, v, err)
				}
			}
			check(t, s)
		}
	})
}

func goodFile(f *testing.F) []byte {
	path := tempPath(f)
	s, err := Open(path, &Options{RewriteRatio: -1})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 40 {
		if _, err := s.SaveAll(Change{Key: fmt.Sprint("k", i), Value: i}, Change{Key: fmt.Sprint("end", i), Value: true}); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		f.Fatal(err)
	}
	return []byte(readFile(f, path))
}

func mustDefaults(t *testing.T) Options {
	o, err := (&Options{ReadOnly: true}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func mustRegistry(t *testing.T) *registry {
	g, err := newRegistry(nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func fuzzSeeds(f *testing.F) []string {
	path := tempPath(f)
	o := testOptions()
	s, err := Open(path, o)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 12 {
		if _, err := s.SaveAll(Change{Key: fmt.Sprint(i % 5), Value: entity{fmt.Sprint(i)}}, Change{Key: "n", Value: i}); err != nil {
			f.Fatal(err)
		}
	}
	appended := strings.TrimRight(readFile(f, path), "\x00")
	if err := s.Rewrite(context.Background()); err != nil {
		f.Fatal(err)
	}
	rewritten := strings.TrimRight(readFile(f, path), "\x00")
	s.opts.Compress = true
	if err := s.Rewrite(context.Background()); err != nil {
		f.Fatal(err)
	}
	packed := strings.TrimRight(readFile(f, path), "\x00")
	if err := s.Close(context.Background()); err != nil {
		f.Fatal(err)
	}
	return []string{"", handMade, appended, rewritten, packed, appended + appended[:200], appended[:300] + "\x00\x00\x00\n" + appended[300:],
		strings.ReplaceAll(rewritten, "\n", "\r\n"), `{"tx":9007199254740992,"n":0,"len":0,"crc":"00000000"}` + "\n"}
}

// FuzzJSON compares the scanner with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\u00e9\n",true,false,null]}`, `01`, `-`, `1.`, `"\x"`, `[1,]`, `{"a"}`, " 1 ", `"` + "\x01" + `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.IndexByte(b, '\n') >= 0 || bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) > maxDepth/2 {
			return
		}
		err := checkJSON(b)
		want := json.Valid(b)
		if bytes.ToValidUTF8(b, nil) != nil && !bytes.Equal(bytes.ToValidUTF8(b, nil), b) {
			want = false // encoding/json replaces what is not UTF-8
		}
		if (err == nil) != want {
			t.Fatalf("%q: got %v, encoding/json says %v", b, err, want)
		}
	})
}
