package main

import (
	"path/filepath"
	"testing"
)

func TestItRunsTwiceOnOneFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	for range 2 {
		if err := run(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
}
