package couch

import (
	"slices"
	"strconv"
	"testing"
)

// TestDescendingIndex wants an index whose fields all descend to serve sorts in
// both directions, equal keys in the order of their ids, turned with the sort.
func TestDescendingIndex(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	for i := range 6 {
		r.want(201, "PUT", "/db/"+strconv.Itoa(i), `{"size":`+strconv.Itoa(i/2)+`,"owner":"tom"}`)
	}
	r.want(200, "POST", "/db/_index", `{"index":{"fields":[{"owner":"desc"},{"size":"desc"}]},"ddoc":"bySize","name":"bySize","type":"json"}`)
	for _, c := range []struct {
		direction string
		want      []string
	}{
		{"desc", []string{"5", "4", "3", "2", "1", "0"}},
		{"asc", []string{"0", "1", "2", "3", "4", "5"}},
	} {
		var got []string
		bookmark := ""
		for len(got) < len(c.want) {
			var page struct {
				Docs []struct {
					ID string `json:"_id"`
				}
				Bookmark string
				Warning  string
			}
			r.want(200, "POST", "/db/_find", `{"selector":{"owner":"tom"},"sort":[{"owner":"`+c.direction+`"},{"size":"`+c.direction+
				`"}],"use_index":["_design/bySize","bySize"],"limit":2,"bookmark":"`+bookmark+`"}`).into(t, &page)
			if len(page.Docs) == 0 || page.Warning != "" {
				t.Fatalf("%s: after %v: %+v, want two more documents without a warning", c.direction, got, page)
			}
			for _, d := range page.Docs {
				got = append(got, d.ID)
			}
			bookmark = page.Bookmark
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.direction, got, c.want)
		}
	}
	var list struct {
		Indexes []struct {
			Def struct{ Fields []map[string]string }
		}
	}
	r.want(200, "GET", "/db/_index", "").into(t, &list)
	if f := list.Indexes[1].Def.Fields; f[0]["owner"] != "desc" || f[1]["size"] != "desc" {
		t.Errorf("the index is listed with fields %v, want them as they were given", f)
	}
}

// TestDeletionTwice wants a deletion without a revision to make a tombstone where
// there was no document, and to be a conflict where there is one.
func TestDeletionTwice(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(200, "PUT", "/db/a", `{"_deleted":true}`)
	r.want(409, "PUT", "/db/a", `{"_deleted":true}`)
	var got []struct{ ID, Error string }
	r.want(201, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"a","_deleted":true,"v":1},{"_id":"b","_deleted":true},{"_id":"b","_deleted":true}]}`).into(t, &got)
	if len(got) != 3 || got[0].Error != "conflict" || got[1].Error != "" || got[2].Error != "conflict" {
		t.Errorf("bulk deletions: got %+v, want a conflict, b deleted, a conflict", got)
	}
	if rev := r.want(201, "PUT", "/db/a", `{"v":2}`).rev(t); rev[0] != '2' {
		t.Errorf("made again: got %s, want generation 2", rev)
	}
}

// TestOddAttachments wants attachments without a name to be taken, and what is no
// object not to be one.
func TestOddAttachments(t *testing.T) {
	r := newRig(t)
	r.want(201, "PUT", "/db", "")
	r.want(201, "PUT", "/db/a", `{"_attachments":{"":{"content_type":"image/png","data":"AAEC"},"x":"AAEC"}}`)
	var doc struct {
		Attachments map[string]struct{ Data string } `json:"_attachments"`
	}
	r.want(200, "GET", "/db/a?attachments=true", "").into(t, &doc)
	if len(doc.Attachments) != 1 || doc.Attachments[""].Data != "AAEC" {
		t.Errorf("attachments are %+v, want the one without a name", doc.Attachments)
	}
}
