package couch

import "testing"

// An attachment that follows has as many bytes as its members say, in whatever
// order they stand: compressed, if it is sent compressed.
func TestAttachmentLengths(t *testing.T) {
	for text, want := range map[string]int64{
		`{"follows":true,"length":9}`:                                          9,
		`{"follows":true,"length":9,"encoding":"gzip","encoded_length":5}`:     5,
		`{"encoded_length":5,"length":9,"follows":true,"encoding":"gzip"}`:     5,
		`{"encoding":"gzip","encoded_length":5,"length":9,"follows":true}`:     5,
		`{"follows":true,"length":9,"encoding":"gzip"}`:                        -1,
		`{"follows":true,"length":9,"encoding":"identity","encoded_length":5}`: 9,
		`{"follows":true}`: -1,
	} {
		in, err := parseDoc([]byte(`{"_attachments":{"x":`+text+`}}`), 0)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := in.atts[0].length; got != want {
			t.Errorf("%s: length %d, want %d", text, got, want)
		}
	}
}
