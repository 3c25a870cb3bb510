package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
)

// The log set is the published one, and every codec gives every value back;
// measureSizes fails if not.
func TestSetsAndCodecs(t *testing.T) {
	js, err := json.Marshal(makeLogs())
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(js)
	if want := "c64897766e9b94cad3557a8e39f176f41a61b768371b80f045f5466fd3dc495b"; hex.EncodeToString(sum[:]) != want {
		t.Errorf("sum of the log set as JSON: want %s, got %x", want, sum)
	}
	for _, s := range sets() {
		list, err := codecs()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			var r result
			if _, err := r.measureSizes(c, s); err != nil {
				t.Errorf("%s on %s: %v", c.name, s.name, err)
			}
		}
	}
}
