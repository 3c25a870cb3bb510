package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/engine"
)

const journalFixture = "testdata/journals-1.zip"

var fixtureLog = osier.NewJournal("log", osier.JournalSettings{MaxEvents: 1000, KeysKept: 5})

// TestJournalsOfEachFormatAreRead opens what an earlier release wrote: complete
// blocks, an open one, types, expiries, keys, a trim.
func TestJournalsOfEachFormatAreRead(t *testing.T) {
	if *writeFixture {
		zipFolder(t, makeJournalFixture(t), journalFixture)
	}
	e, err := engine.Open(unzip(t, journalFixture), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx := context.Background()
	db, err := e.OpenDB(ctx, "fixture")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for ev, err := range fixtureLog.Read(ctx, db, &osier.ReadOptions{All: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%v %q %d %.20s", ev.Position, ev.Type, max(ev.Expires.Unix(), 0), ev.Data))
	}
	res, err := fixtureLog.AppendEvents(ctx, db, []osier.Event{{}}, &osier.AppendOptions{Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := fixtureLog.Info(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, fmt.Sprint(res, info.Settings, info.Last, info.Trimmed, info.Count, info.Appended, info.Bytes))
	sameAsGolden(t, "journals-1.txt", got)
	if _, err := e.Check(ctx, func(p engine.Problem) { t.Error(p) }); err != nil {
		t.Error(err)
	}
}

func makeJournalFixture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e, err := engine.Open(dir, &engine.Options{Clock: func() time.Time { at = at.Add(time.Millisecond); return at }})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := e.DB(ctx, "fixture", osier.Schema(fixtureLog))
	must(err)
	var first osier.Position
	for i := range 20 {
		data := []byte(fmt.Sprintf("event %d %s", i, strings.Repeat(".", 200*i)))
		res, err := fixtureLog.AppendEvents(ctx, db, []osier.Event{{Data: data}, {Type: "typed", Data: data,
			Expires: time.Date(2226, 1, 1, 0, 0, i, 0, time.UTC)}}, nil)
		must(err)
		if i == 2 {
			first = res.Last
		}
	}
	must(fixtureLog.Trim(ctx, db, first))
	_, err = fixtureLog.AppendEvents(ctx, db, []osier.Event{{Data: []byte("keyed")}}, &osier.AppendOptions{Key: "key"})
	must(err)
	_, err = fixtureLog.AppendEvents(ctx, db.With(osier.Relaxed), []osier.Event{{Data: []byte("relaxed")}}, nil)
	must(err)
	must(e.Close())
	return dir
}
