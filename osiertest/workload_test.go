package osiertest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/osierdb/osier"
)

func TestWorkloadTextIsReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := Workload(rapid.SliceOfN(opGenerator(true), 0, 20).Draw(rt, "ops"))
		back, err := Parse(w.String())
		if err != nil {
			rt.Fatalf("%v\n%s", err, w)
		}
		if back.String() != w.String() {
			rt.Fatalf("want\n%s\ngot\n%s", w, back)
		}
		for i := range w {
			if diff := cmp.Diff(w[i], back[i]); diff != "" {
				rt.Fatalf("operation %d: want -, got +:\n%s", i, diff)
			}
		}
	})
}

func TestWorkloadIsMadeOfItsSeed(t *testing.T) {
	o := GenerateOptions{Reopen: true}
	a, b, c := Generate(1, 200, o), Generate(1, 200, o), Generate(2, 200, o)
	if len(a) != 200 || a.String() != b.String() {
		t.Fatal("the same seed made different workloads")
	}
	if a.String() == c.String() {
		t.Fatal("different seeds made the same workload")
	}
	for _, op := range Generate(3, 300, GenerateOptions{WritesOnly: true}) {
		switch op.Verb {
		case Put, Update, Delete, Graft, Ungraft, Batch, Create, Drop, Settings, Forget:
		default:
			t.Fatalf("%v is not a write", op)
		}
	}
}

func TestParseRefusesWhatIsNoWorkload(t *testing.T) {
	for _, text := range []string{"jump", "put nonsense=1", "list limit=x", `put body="open`, "  put id=a", "put id=a\n  put id=b", "list skip"} {
		if w, err := Parse(text); err == nil {
			t.Errorf("%q was read as %v", text, w)
		}
	}
}

func TestTranscriptOfAStory(t *testing.T) {
	w, err := Parse(`
# A document's life, and a conflict.
create db=shop
put db=shop in=films id=a expect=absent body="{\"n\":1}"
put db=shop in=films id=a expect=absent body={}
graft db=shop in=films id=a path=2-x,1-y body={}
update db=shop in=films id=a rev=leaf1 body="{\"n\":2}"
tx db=shop
  get in=films id=a
  meanwhile put in=films id=a expect=any body=[]
  put in=films id=#7 expect=absent body={}
list db=shop in=films reverse limit=1
delete db=shop in=films id=#7 rev=winner
count db=shop in=films
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ok",
		"a 1-731bef401491606a3b246ed178e697c1 @1",
		"error: conflict",
		"a 2-x @2",
		"a 2-c7b1fa7ae4e5ec669a544d4ef6eee928 @3",
		"tries 2: a 3-b1636487879feb76182675ea97936309 @4 []; ok",
		"a 3-b1636487879feb76182675ea97936309 @4 []",
		"#7 2-eec205a9d413992850a6e32678485900 @6",
		"1",
	}
	s := osier.NewStore(NewModel(nil), nil)
	for i, op := range w {
		if got := Apply(t.Context(), s, op); got != want[i] {
			t.Errorf("%v:\nwant %s\ngot  %s", op, want[i], got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Generate(1, 50, GenerateOptions{Reopen: true}).String())
	f.Add("tx db=a\n  meanwhile put id=\"\\x00\"\n# remark\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Parse(text)
		if err != nil {
			return
		}
		back, err := Parse(w.String())
		if err != nil {
			t.Fatalf("%v: reading back\n%s", err, w)
		}
		if back.String() != w.String() {
			t.Fatalf("want\n%s\ngot\n%s", w, back)
		}
	})
}
