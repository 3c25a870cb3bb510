package clients

import (
	"os"
	"os/exec"
	"testing"
)

// Scripts with npm's clients, which node/package.json names:
//
//	(cd node && npm install --no-package-lock)
func TestNode(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node is not installed: PouchDB and nano are not driven against the door")
	}
	if _, err := os.Stat("node/node_modules/pouchdb"); err != nil {
		t.Skip("npm's clients are not installed: run npm install --no-package-lock in server/couch/clients/node")
	}
	for _, script := range []string{"pouchdb.js", "nano.js"} {
		t.Run(script, func(t *testing.T) {
			cmd := exec.Command("node", script, serve(t))
			cmd.Dir = "node"
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
