// Package tidy holds the house's rules as data and checks them in a test: which
// room may import which, how long files and functions may be, and that the
// README shows what the examples run. It has no other users.
package tidy

// room is a package of the house. Budgets are lines of code outside tests; they
// bound growth, and raising one is a decision to be seen in a diff.
type room struct {
	path    string   // below the module; "" is the root
	imports []string // rooms it may import
	third   []string // modules from elsewhere it may import, by prefix
	budget  int
}

// rooms is the table of ARCHITECTURE.md. An edge that is not here is
// forbidden, even if it points down.
var rooms = []room{
	{path: "", imports: []string{"pot", "internal/jsonplan", "internal/keys", "internal/mango"}, budget: 9100},
	{path: "pot", budget: 10300},
	{path: "pocket", third: []string{"github.com/andybalholm/brotli", "golang.org/x/sys"}, budget: 7800},
	{path: "cbor", imports: []string{""}, third: []string{"github.com/fxamacker/cbor/v2"}, budget: 200},
	{path: "internal/keys", budget: 1400},
	{path: "internal/revtree", budget: 1400},
	{path: "internal/kv", imports: []string{""}, budget: 3300},
	{path: "internal/kvmem", budget: 500},
	{path: "internal/topic", imports: []string{""}, budget: 700},
	{path: "internal/reduce", budget: 1200},
	{path: "internal/jsonplan", budget: 1700},
	{path: "internal/mango", imports: []string{"internal/keys"}, budget: 5000},
	{path: "internal/naive", budget: 400},
	{path: "internal/store", imports: []string{"internal/keys"},
		third: []string{"github.com/cockroachdb/pebble/v2", "golang.org/x/sys"}, budget: 5000},
	{path: "engine", imports: []string{"", "pot", "cbor", "internal/keys", "internal/kv", "internal/kvmem", "internal/topic",
		"internal/revtree", "internal/mango", "internal/reduce", "internal/store"}, budget: 20500},
	{path: "osiertest", imports: []string{"", "internal/keys", "internal/revtree", "internal/mango", "internal/naive"},
		third: []string{"pgregory.net/rapid", "github.com/google/go-cmp"}, budget: 12500},
	{path: "server", imports: []string{""}, third: []string{"golang.org/x/crypto/argon2", "github.com/prometheus/client_golang"}, budget: 5000},
	{path: "server/couch", imports: []string{"", "server"}, budget: 9000},
	{path: "cmd/osier", imports: []string{"", "engine", "pot", "pocket", "cbor", "server", "server/couch"},
		third: []string{"github.com/alecthomas/kong", "github.com/prometheus/client_golang", "golang.org/x/term", "golang.org/x/sys"}, budget: 8500},
	{path: "internal/tidy", budget: 400},
}

// Lengths beyond which a thing is two things.
const (
	maxFile     = 800
	maxTestFile = 1200
	maxFunc     = 70
)

// module is this module's path.
const module = "github.com/osierdb/osier"

// testOnly are modules that tests, and only they, may import anywhere.
var testOnly = []string{
	"pgregory.net/rapid", "github.com/google/go-cmp", "github.com/rogpeppe/go-internal",
	"github.com/cockroachdb/pebble/v2/vfs", "github.com/cockroachdb/pebble/v2", "github.com/fxamacker/cbor/v2",
}
