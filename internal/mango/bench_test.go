package mango

import (
	"encoding/json"
	"fmt"
	"testing"
)

// benchDocs returns documents of about 200 bytes with the looked-at members in
// the middle.
func benchDocs(n int) []Doc {
	docs := make([]Doc, n)
	for i := range docs {
		docs[i] = Doc{ID: fmt.Sprintf("doc-%06d", i), Body: fmt.Appendf(nil,
			`{"type":"post","title":"Notes on number %d","author":"Ada %d","tags":["go","db","t%d"],"words":%d,"score":%d.%d,"city":"Oslo","address":{"zip":"0%d","geo":{"lat":59.%d,"lon":10.75}},"draft":false}`,
			i, i%50, i%7, i%1000, i%10, i%10, 100+i%900, i%100)}
	}
	return docs
}

// BenchmarkMatch compares matching over stored bytes with decoding every
// document and evaluating the decoded value, on the same documents.
func BenchmarkMatch(b *testing.B) {
	docs := benchDocs(5000)
	b.Logf("%d bytes a document", len(docs[2500].Body))
	for _, c := range []struct{ name, selector string }{
		{"equal", `{"city":"Bergen"}`},
		{"range", `{"score":{"$gt":8}}`},
		{"string-range", `{"author":{"$gte":"Ada 40"}}`},
		{"nested", `{"address.geo.lat":{"$gte":59.9}}`},
		{"conjunction", `{"type":"post","words":{"$gt":900},"draft":false}`},
		{"in", `{"tags":{"$in":["t3","t5"]}}`},
		{"regex", `{"title":{"$regex":"99$"}}`},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/bytes", func(b *testing.B) {
			b.ReportAllocs()
			defer cpuTime(b)()
			for i := 0; b.Loop(); i++ {
				if _, err := s.Match(&docs[i%len(docs)]); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/decoded", func(b *testing.B) {
			b.ReportAllocs()
			defer cpuTime(b)()
			for i := 0; b.Loop(); i++ {
				d := &docs[i%len(docs)]
				var v map[string]any
				if err := json.Unmarshal(d.Body, &v); err != nil {
					b.Fatal(err)
				}
				v["_id"] = d.ID
				judge.Match(c.selector, v)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	selector := []byte(`{"type":"post","$or":[{"words":{"$gt":900}},{"author":"Ada"}],"tags":{"$elemMatch":{"$beginsWith":"g"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(selector, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollate(b *testing.B) {
	for _, c := range [][3]string{{"ascii", "Notes on number 17", "Notes on number 18"}, {"accents", "Tromsø fjord", "Tromsö fjord"}} {
		b.Run(c[0], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Unicode.Compare(c[1], c[2])
			}
		})
	}
}

// BenchmarkMatchValid is Match of any text, of text that is known to be JSON, and
// of the same by a Matcher.
func BenchmarkMatchValid(b *testing.B) {
	docs, valid := benchDocs(5000), benchDocs(5000)
	for i := range valid {
		valid[i].Valid = true
	}
	for _, c := range []struct{ name, selector string }{
		{"equal", `{"city":"Bergen"}`},
		{"range", `{"score":{"$gt":8}}`},
		{"nested", `{"address.geo.lat":{"$gte":59.9}}`},
		{"conjunction", `{"type":"post","words":{"$gt":900},"draft":false}`},
		{"missing", `{"nowhere":1}`},
	} {
		s, err := Compile([]byte(c.selector), nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, way := range []struct {
			name  string
			docs  []Doc
			match func(*Doc) (bool, error)
		}{{"any", docs, s.Match}, {"valid", valid, s.Match}, {"matcher", valid, s.Matcher().Match}} {
			b.Run(c.name+"/"+way.name, func(b *testing.B) {
				defer cpuTime(b)()
				for i := 0; b.Loop(); i++ {
					if _, err := way.match(&way.docs[i%len(docs)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
