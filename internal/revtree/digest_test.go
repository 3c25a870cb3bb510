package revtree

import (
	"encoding/hex"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// An edit is a step of a chain in testdata/revisions.txt.
type edit struct {
	deleted bool
	body    string
	atts    []Att
	rev     string
}

func readChains(t testing.TB) [][]edit {
	t.Helper()
	text, err := os.ReadFile("testdata/revisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	var chains [][]edit
	var chain []edit
	for line := range strings.Lines(string(text) + "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch verb {
		case "#":
		case "":
			if len(chain) > 0 {
				chains, chain = append(chains, chain), nil
			}
		case "edit", "delete":
			chain = append(chain, edit{deleted: verb == "delete", body: rest})
		case "att":
			f := strings.Fields(rest)
			sum, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			e := &chain[len(chain)-1]
			e.atts = append(e.atts, Att{Name: f[0], Type: f[1], MD5: [16]byte(sum)})
		case "rev":
			chain[len(chain)-1].rev = rest
		default:
			t.Fatalf("testdata: unknown line %q", line)
		}
	}
	return chains
}

// Every edit gets the revision that CouchDB gave to it.
func TestCouchRevisions(t *testing.T) {
	chains, edits := readChains(t), 0
	for _, chain := range chains {
		var parent Rev
		for _, e := range chain {
			term, err := AppendTerm(nil, []byte(e.body))
			if err != nil {
				t.Fatalf("AppendTerm(%s): %v", e.body, err)
			}
			got := NewRev(parent.Gen+1, JSONDigest(e.deleted, parent, term, e.atts))
			if got.String() != e.rev {
				t.Errorf("edit of %v to %.200s: got %v, want %s", parent, e.body, got, e.rev)
			}
			if parent, err = Parse(e.rev); err != nil {
				t.Fatal(err)
			}
			edits++
		}
	}
	if len(chains) != 40 || edits != 68 {
		t.Errorf("testdata has %d chains of %d edits, want 40 of 68", len(chains), edits)
	}
}

// A deletion without body is one with an empty body.
func TestDigestEmptyBody(t *testing.T) {
	term, err := AppendTerm(nil, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := JSONDigest(true, Rev{}, nil, nil), JSONDigest(true, Rev{}, term, nil); got != want {
		t.Errorf("no body: got %x, want %x", got, want)
	}
}

// Every part of an edit changes both digests, and moving a byte from one part to
// its neighbour does too.
func TestDigestsTellApart(t *testing.T) {
	p16, err := Parse("1-abcdefghijklmnop")
	if err != nil {
		t.Fatal(err)
	}
	type input struct {
		deleted bool
		parent  Rev
		tag     byte
		body    string
		atts    []Att
	}
	inputs := []input{
		{},
		{deleted: true},
		{parent: Rev{Gen: 1, Digest: "a"}},
		{parent: Rev{Gen: 2, Digest: "a"}},
		{parent: Rev{Gen: 1, Digest: "ab"}},
		{parent: p16},
		{parent: Rev{Gen: 1, Digest: "abcdefghijklmnop"}},
		{tag: 1},
		{body: "x"},
		{body: "xy"},
		{tag: 'x', body: "y"},
		{body: "x", atts: []Att{{Name: "n", Type: "t"}}},
		{atts: []Att{{Name: "n", Type: "t"}}},
		{atts: []Att{{Name: "nt"}}},
		{atts: []Att{{Type: "nt"}}},
		{atts: []Att{{Name: "n", Type: "t"}, {Name: "m", Type: "t"}}},
		{atts: []Att{{Name: "n", Type: "t", MD5: [16]byte{1}}}},
	}
	seen := make(map[[16]byte]int)
	for i, in := range inputs {
		sum := OpaqueDigest(in.deleted, in.parent, in.tag, []byte(in.body), in.atts)
		if j, ok := seen[sum]; ok {
			t.Errorf("inputs %d and %d have the same digest", j, i)
		}
		seen[sum] = i
	}
}

// The opaque digest is a format: it may never change. Its attachments may come in
// any order.
func TestOpaqueDigestFixed(t *testing.T) {
	atts := []Att{{Name: "b", Type: "text/plain", MD5: [16]byte{1}}, {Name: "a", Type: "image/png", MD5: [16]byte{2}}}
	parent := Rev{Gen: 3, Digest: "abc"}
	got := OpaqueDigest(true, parent, 7, []byte("body"), atts)
	const want = "2ace86a9bcd52d163b68edb542569d79"
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("got %x, want %s", got, want)
	}
	slices.Reverse(atts)
	if again := OpaqueDigest(true, parent, 7, []byte("body"), atts); again != got {
		t.Errorf("reversed attachments: got %x, want %x", again, got)
	}
	if atts[0].Name != "a" {
		t.Error("the caller's attachments were moved")
	}
	got = OpaqueDigest(false, Rev{}, 0, nil, nil)
	const wantEmpty = "b70f3c8b339d4be4aed5f5dc61938497"
	if hex.EncodeToString(got[:]) != wantEmpty {
		t.Errorf("of nothing: got %x, want %s", got, wantEmpty)
	}
}

// randomRev returns a revision of any form, likely to collide with others.
func randomRev(r *rand.Rand, gen uint64) Rev {
	texts := []string{"a", "b", "abcdefghijklmnop", "61626364656667686970", "é", "a-b", "zzzzzzzzzzzzzzzz"}
	if r.IntN(2) == 0 {
		rev, err := FromParts(gen, texts[r.IntN(len(texts))])
		if err != nil {
			panic(err)
		}
		return rev
	}
	var d [16]byte
	copy(d[:], texts[2])
	d[15] = byte(r.IntN(3))
	return NewRev(gen, d)
}

func BenchmarkJSONDigest(b *testing.B) {
	term, err := AppendTerm(nil, kibDocument())
	if err != nil {
		b.Fatal(err)
	}
	parent := NewRev(1, [16]byte{1})
	b.ReportAllocs()
	b.SetBytes(int64(len(term)))
	for b.Loop() {
		JSONDigest(false, parent, term, nil)
	}
}

func BenchmarkOpaqueDigest(b *testing.B) {
	body := kibDocument()
	parent := NewRev(1, [16]byte{1})
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		OpaqueDigest(false, parent, 1, body, nil)
	}
}
