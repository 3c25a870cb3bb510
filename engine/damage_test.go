package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier"
)

// sample is a closed store of many tables and what it holds. Ids are unique
// over all collections, so that a document is found wherever a repair puts it.
type sample struct {
	dir  string
	docs map[string]sampleDoc
	said int
}

// bad bounds how much is said about one store.
func (s *sample) bad() bool {
	s.said++
	return s.said < 5
}

type sampleDoc struct {
	coll    string
	num     uint32 // of the collection
	rev     osier.Rev
	body    string
	deleted bool
	content []byte // of its attachment
}

// newSample fills a folder. With crash the folder is as a crash would leave it:
// the last writes are in the log only.
func newSample(t *testing.T, rng *rand.Rand, crash bool) *sample {
	t.Helper()
	s := &sample{dir: filepath.Join(t.TempDir(), "store"), docs: map[string]sampleDoc{}}
	work := s.dir
	if crash {
		work = filepath.Join(t.TempDir(), "work")
	}
	e := mustOpen(t, work, smallStore(nil))
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCollection, Collection: "books",
		Settings: &osier.Settings{Codec: osier.TagJSON, History: osier.KeepAll}}}})
	for i := range 500 {
		s.put(t, e, rng, "films", fmt.Sprintf("film-%d", i))
	}
	for i := range 60 {
		id := fmt.Sprintf("book-%d", i)
		for range 3 {
			s.put(t, e, rng, "books", id)
		}
		if i%4 == 0 {
			s.remove(t, e, "books", id)
		}
	}
	if err := e.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s.attach(t, e, rng, fmt.Sprintf("file-%d", i), 100+rng.IntN(40_000))
	}
	for i := range 200 {
		s.put(t, e, rng, "films", fmt.Sprintf("film-%d", rng.IntN(600)))
		if i%10 == 0 {
			s.put(t, e, rng, "books", fmt.Sprintf("book-%d", rng.IntN(60)))
		}
	}
	checkClean(t, e, "sample")
	if crash {
		copyLive(t, s.dir, work)
	}
	mustClose(t, e)
	return s
}

// copyLive copies the folder of an open store that nobody writes to, when its
// background work has come to rest.
func copyLive(t *testing.T, to, from string) {
	t.Helper()
	list := func() string {
		names, err := filepath.Glob(filepath.Join(from, "data", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	eventually(t, "the folder comes to rest", func() bool {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		before := list()
		return os.CopyFS(to, os.DirFS(from)) == nil && list() == before
	})
}

func (s *sample) put(t *testing.T, e *Engine, rng *rand.Rand, coll, id string) {
	t.Helper()
	op := set(coll, id, bodyOf(rng, 200+rng.IntN(800)))
	c := &osier.Command{DB: "shop", Durability: osier.Buffered, Ops: []osier.Op{op}}
	if rng.IntN(3) == 0 {
		c.Session, c.Number = "writer", rng.Uint64()
	}
	res := mustExec(t, e, c)
	s.docs[id] = sampleDoc{coll: coll, num: collNum(e, coll), rev: res.Ops[0].Rev, body: string(op.Body)}
}

func (s *sample) remove(t *testing.T, e *Engine, coll, id string) {
	t.Helper()
	res := mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpPut, Collection: coll, ID: osier.MustID(id), Deleted: true}}})
	s.docs[id] = sampleDoc{coll: coll, num: collNum(e, coll), rev: res.Ops[0].Rev, deleted: true}
}

func (s *sample) attach(t *testing.T, e *Engine, rng *rand.Rand, id string, size int) {
	t.Helper()
	content := []byte(bodyOf(rng, size))
	attach(t, e, "shop", "files", id, content)
	row := getRow(t, e, "shop", "files", osier.MustID(id), osier.WithBody)
	s.docs[id] = sampleDoc{coll: "files", num: collNum(e, "files"), rev: row.Rev, body: string(row.Body), content: content}
}

func collNum(e *Engine, coll string) uint32 {
	return (*(*e.dbs.Load())["shop"].visible.Load())[coll].num
}

// copy returns a copy of the folder to be damaged.
func (s *sample) copy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damage is something that happens to a file.
type damage struct {
	name string
	// files says which of the folder's files it happens to.
	files string
	do    func(rng *rand.Rand, path string) error
	// refused: Open must refuse the store. Otherwise the damage may show in
	// reads only, and Check must find it.
	refused bool
	// located: Check knows the place in the file.
	located bool
}

var damages = []damage{
	{name: "a bit of a table is flipped", files: "data/*.sst", do: flipBit, located: true},
	{name: "a stretch of a table is zeroed", files: "data/*.sst", do: zeroStretch, located: true},
	{name: "a table is cut", files: "data/*.sst", do: cutFile},
	{name: "a table is removed", files: "data/*.sst", do: removeFile},
	{name: "the manifest is removed", files: "data/MANIFEST-*", do: removeFile, refused: true},
	{name: "a bit of the manifest is flipped", files: "data/MANIFEST-*", do: flipBit},
	{name: "the manifest is cut", files: "data/MANIFEST-*", do: cutFile, refused: true},
	{name: "osier.json is overwritten", files: "osier.json", do: garbage, refused: true},
	{name: "osier.json is removed", files: "osier.json", do: removeFile, refused: true},
	{name: "osier.json is empty", files: "osier.json", do: emptyFile, refused: true},
}

func flipBit(rng *rand.Rand, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
	return os.WriteFile(path, b, 0o644)
}

func zeroStretch(rng *rand.Rand, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := rng.IntN(len(b))
	clear(b[at:min(at+4096, len(b))])
	return os.WriteFile(path, b, 0o644)
}

func cutFile(rng *rand.Rand, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, rng.Int64N(info.Size()))
}

func removeFile(_ *rand.Rand, path string) error { return os.Remove(path) }
func emptyFile(_ *rand.Rand, path string) error  { return os.Truncate(path, 0) }
func garbage(_ *rand.Rand, path string) error    { return os.WriteFile(path, []byte("{not json"), 0o644) }

// Damage to a file is a typed error that names the file, where it is met and
// nowhere else; Check finds it; and Repair saves the rest and lists what is lost.
func TestDamage(t *testing.T) {
	seed := seedOf(t)
	s := newSample(t, rngOf(seed, -1), false)
	for i, d := range damages {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) {
			n := rounds(4, 1)
			if d.files == "osier.json" {
				n = 1
			}
			for round := range n {
				rng := rngOf(seed, i*1000+round)
				s.damaged(t, rng, d, fmt.Sprintf("seed %d, round %d", seed, round))
				if t.Failed() {
					return
				}
			}
		})
	}
}

func (s *sample) damaged(t *testing.T, rng *rand.Rand, d damage, name string) {
	t.Helper()
	defer watchdog(2*time.Minute, name)()
	dir := s.copy(t)
	files, err := filepath.Glob(filepath.Join(dir, d.files))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file %s: %v", d.files, err)
	}
	path := files[rng.IntN(len(files))]
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.do(rng, path); err != nil {
		t.Fatal(err)
	}
	file := filepath.Base(path)
	name += ": " + d.name + ", " + file
	if after, err := os.ReadFile(path); err == nil && bytes.Equal(before, after) {
		return // zeros were zeroed
	}
	e, err := Open(dir, smallStore(nil))
	if err != nil {
		requireDamage(t, name+": open", file, err)
	} else {
		if d.refused {
			t.Errorf("%s: open did not notice", name)
		}
		s.reads(t, e, name, file)
		if strings.HasPrefix(file, "MANIFEST") {
			// What was lost at its end is what the logs still have, and a new
			// manifest has been written.
			checkClean(t, e, name)
		} else {
			requireFound(t, e, name, file, d.located)
		}
		if err := e.Close(); err != nil {
			requireDamage(t, name+": close", file, err)
		}
	}
	s.repaired(t, dir, name, file)
}

// requireDamage: the error says that, and which file. After damage to the
// manifest that may be a table which an older manifest names.
func requireDamage(t *testing.T, name, file string, err error) {
	t.Helper()
	named := strings.Contains(err.Error(), file) || strings.HasPrefix(file, "MANIFEST") && strings.Contains(err.Error(), ".sst")
	if !errors.Is(err, osier.ErrCorrupt) || !named {
		t.Errorf("%s: %v (%v), want ErrCorrupt that names %s", name, err, osier.KindOf(err), file)
	}
}

// reads: each document is as it was, or its read fails for the damaged file.
func (s *sample) reads(t *testing.T, e *Engine, name, file string) {
	t.Helper()
	// The storage engine takes a second to find that a block is damaged, each
	// time: it tries which bit may have been flipped.
	lost := 0
	for id, doc := range s.docs {
		if lost == 2 {
			break
		}
		rows, err := rowsOf(e, &osier.Query{Kind: osier.QueryGet, DB: "shop", Collection: doc.coll, IDs: []osier.ID{osier.MustID(id)}, Parts: osier.WithBody, Deleted: true})
		if err != nil {
			requireDamage(t, name+": get", file, err)
			lost++
			continue
		}
		if row := rows[0]; row.Rev != doc.rev || string(row.Body) != doc.body || row.Deleted != doc.deleted {
			t.Errorf("%s: %s is read as %v %.40q, it was %v %.40q", name, id, row.Rev, row.Body, doc.rev, doc.body)
		} else if doc.content != nil {
			if got, err := fetchAll(e, "shop", row.Attachments[0].Blob); err != nil {
				requireDamage(t, name+": fetch", file, err)
			} else if !bytes.Equal(got, doc.content) {
				t.Errorf("%s: attachment of %s has %d bytes of %d", name, id, len(got), len(doc.content))
			}
		}
	}
	if _, err := rowsOf(e, &osier.Query{Kind: osier.QueryScan, DB: "shop", Collection: "films", Parts: osier.WithBody}); err != nil {
		requireDamage(t, name+": scan", file, err)
	}
}

// requireFound: Check reports the damaged file.
func requireFound(t *testing.T, e *Engine, name, file string, located bool) {
	t.Helper()
	found := problems(t, e)
	for _, p := range found {
		if p.File == file && (p.Offset >= 0 || !located) {
			return
		}
	}
	t.Errorf("%s: check found %v, want a problem of %s, with its place: %t", name, found, file, located)
}

// repaired repairs the store and judges what is left.
func (s *sample) repaired(t *testing.T, dir, name, file string) {
	t.Helper()
	reported := 0
	out, err := Repair(context.Background(), dir, func(Problem) { reported++ })
	if err != nil {
		t.Errorf("%s: repair: %v", name, err)
		return
	}
	if reported != len(out.Lost) {
		t.Errorf("%s: repair reported %d losses and lists %d", name, reported, len(out.Lost))
	}
	if _, err := os.Stat(filepath.Join(out.Old, "data")); err != nil || filepath.Dir(out.Old) != filepath.Dir(dir) {
		t.Errorf("%s: the damaged store is not kept beside: %s, %v", name, out.Old, err)
	}
	lost := losses(out.Lost, file)
	e := mustOpen(t, dir, smallStore(nil))
	defer mustClose(t, e)
	checkClean(t, e, name+": repaired")
	found, dbs := everything(t, e)
	gone := 0
	for id, doc := range s.docs {
		row, there := found[id]
		same := there && row.Rev == doc.rev && string(row.Body) == doc.body && (doc.content == nil || len(row.Attachments) == 1)
		if same {
			continue
		}
		if gone++; !lost(id, doc) && s.bad() {
			t.Errorf("%s: %s is repaired to %v, it was %v, and is not among the %d losses", name, id, row.Rev, doc.rev, len(out.Lost))
		}
	}
	s.said = 0
	for id := range found {
		if _, known := s.docs[id]; !known {
			t.Errorf("%s: repair made %s up", name, id)
		}
	}
	// What was lost can be written anew, and nothing of old comes up.
	for id, doc := range s.docs {
		for _, db := range dbs {
			mustExec(t, e, &osier.Command{DB: db, Durability: osier.Relaxed, Ops: []osier.Op{set(doc.coll, id, `{"again":true}`)}})
		}
	}
	checkClean(t, e, name+": written to again")
	t.Logf("%s: %d of %d documents lost, %d losses listed, such as %v", name, gone, len(s.docs), len(out.Lost), out.Lost[:min(3, len(out.Lost))])
}

var keysBetween = regexp.MustCompile(`\(keys between ("(?:[^"\\]|\\.)*") and ("(?:[^"\\]|\\.)*")\)`)

// losses tells whether a document is listed as lost: by its id, or, where
// nothing names it any more, by a damaged file whose keys surround its own, or
// by a file that is missing, whose keys nobody knows.
func losses(list []Problem, file string) func(id string, doc sampleDoc) bool {
	byID, missing := map[string]bool{}, false
	number := strings.TrimSuffix(file, ".sst")
	type span struct{ after, before string }
	var spans []span
	for _, p := range list {
		byID[p.ID] = true
		missing = missing || strings.Contains(p.Err.Error(), number) && strings.Contains(p.Err.Error(), "does not exist")
		if m := keysBetween.FindStringSubmatch(p.Err.Error()); m != nil && p.File != "" {
			after, err1 := strconv.Unquote(m[1])
			before, err2 := strconv.Unquote(m[2])
			if err1 == nil && err2 == nil {
				spans = append(spans, span{after, before})
			}
		}
	}
	return func(id string, doc sampleDoc) bool {
		key := string(docKey(nil, 1, doc.num, osier.MustID(id)))
		return byID[id] || missing || slices.ContainsFunc(spans, func(s span) bool { return s.after <= key && (key <= s.before || s.before == "") })
	}
}

// everything reads all documents of all databases.
func everything(t *testing.T, e *Engine) (found map[string]osier.Row, dbs []string) {
	t.Helper()
	found = map[string]osier.Row{}
	for _, db := range mustRows(t, e, &osier.Query{Kind: osier.QueryDatabases}) {
		dbs = append(dbs, db.DB.Name)
		for _, c := range mustRows(t, e, &osier.Query{Kind: osier.QueryInfo, DB: db.DB.Name})[0].DB.Collections {
			for _, row := range mustRows(t, e, &osier.Query{Kind: osier.QueryScan, DB: db.DB.Name, Collection: c.Name, Parts: osier.WithBody, Deleted: true}) {
				found[row.ID.String()] = row
			}
		}
	}
	return found, dbs
}

// Damage to the log of a store that was not closed is noticed, not taken for the
// torn end that a crash leaves, unless it is in that end.
func TestDamagedLog(t *testing.T) {
	seed := seedOf(t)
	s := newSample(t, rngOf(seed, -2), true)
	for round := range rounds(20, 3) {
		rng := rngOf(seed, round)
		name := fmt.Sprintf("seed %d, round %d", seed, round)
		dir := s.copy(t)
		logs, err := filepath.Glob(filepath.Join(dir, "data", "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("no log: %v", err)
		}
		path := logs[rng.IntN(len(logs))]
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			continue
		}
		if err := flipBit(rng, path); err != nil {
			t.Fatal(err)
		}
		e, err := Open(dir, smallStore(nil))
		if err != nil {
			requireDamage(t, name+": open", filepath.Base(path), err)
			out, err := Repair(context.Background(), dir, nil)
			if err != nil {
				t.Errorf("%s: repair: %v", name, err)
				continue
			}
			e = mustOpen(t, dir, smallStore(nil))
			t.Logf("%s: %d losses: %v", name, len(out.Lost), out.Lost[:min(3, len(out.Lost))])
		}
		checkClean(t, e, name)
		mustClose(t, e)
		if t.Failed() {
			return
		}
	}
}

// A store that somebody has open is not repaired, and stays as it is.
func TestRepairOfAnOpenStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	e := mustOpen(t, dir, nil)
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{{Kind: osier.OpCreateDB}}})
	if _, err := Repair(context.Background(), dir, nil); !errors.Is(err, osier.ErrLocked) {
		t.Errorf("repair of an open store: %v, want ErrLocked", err)
	}
	mustExec(t, e, &osier.Command{DB: "shop", Ops: []osier.Op{set("films", 1, `{}`)}})
	checkClean(t, e, "after the attempt")
	mustClose(t, e)
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 {
		t.Errorf("the attempt left %v, %v; want the store alone", entries, err)
	}
}

// Repair of a whole store changes nothing that can be seen.
func TestRepairOfAWholeStore(t *testing.T) {
	s := newSample(t, rngOf(seedOf(t), 0), false)
	dir := s.copy(t)
	e := mustOpen(t, dir, smallStore(nil))
	want := stateOf(t, e)
	mustClose(t, e)
	out, err := Repair(context.Background(), dir, nil)
	if err != nil || len(out.Lost) > 0 {
		t.Fatalf("repair: %v, losses %v", err, out.Lost)
	}
	e = mustOpen(t, dir, smallStore(nil))
	defer mustClose(t, e)
	if got := stateOf(t, e); got != want {
		t.Errorf("the state after repair is %x, it was %x", got, want)
	}
	checkClean(t, e, "repaired")
}
