//go:build !cgo

package peers

import "fmt"

// OpenSQLite says why there is no SQLite.
func OpenSQLite(string, Level) (Store, error) {
	return nil, fmt.Errorf("%w: SQLite needs cgo; build with CGO_ENABLED=1 and a C compiler", ErrAbsent)
}
