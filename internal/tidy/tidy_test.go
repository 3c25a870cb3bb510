package tidy

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// source is a parsed Go file of the house.
type source struct {
	path string // below the root, with slashes
	room string
	test bool
	text []byte
	file *ast.File
	fset *token.FileSet
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "dist") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != root && err == nil {
				return fs.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s := source{path: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), text: text, fset: token.NewFileSet()}
		if s.room = filepath.ToSlash(filepath.Dir(s.path)); s.room == "." {
			s.room = ""
		}
		if s.file, err = parser.ParseFile(s.fset, s.path, text, parser.ParseComments); err != nil {
			return err
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func findRoom(path string) *room {
	for i := range rooms {
		if rooms[i].path == path {
			return &rooms[i]
		}
	}
	return nil
}

func TestImportsFollowTheTableOfRooms(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasPrefix(s.room, "examples") {
			continue // examples are users
		}
		r := findRoom(s.room)
		if r == nil {
			t.Errorf("%s: room %q is not in the table", s.path, s.room)
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if !strings.Contains(strings.Split(path, "/")[0], ".") {
				continue // the standard library
			}
			if target, ok := strings.CutPrefix(path, module); ok {
				target = strings.TrimPrefix(target, "/")
				if target != s.room && !slices.Contains(r.imports, target) && !(s.test && mayTest(s, target)) {
					t.Errorf("%s imports %q: no such arrow from %q", s.path, target, s.room)
				}
				continue
			}
			under := func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }
			if !slices.ContainsFunc(r.third, under) && !(s.test && slices.ContainsFunc(testOnly, under)) {
				t.Errorf("%s imports %q: a room of its own or a line in the table is needed", s.path, path)
			}
		}
	}
}

// mayTest allows tests the packages that make and judge backends.
func mayTest(s source, target string) bool {
	switch target {
	case "engine", "osiertest":
		return s.room == "" || s.room == "engine" || s.room == "cmd/osier" || s.room == "cbor" || strings.HasPrefix(s.room, "server")
	}
	return target == "internal/revtree" || target == "internal/keys" || target == "internal/naive"
}

func TestRoomsKeepTheirBudgets(t *testing.T) {
	lines := map[string]int{}
	for _, s := range sources(t) {
		if !s.test {
			lines[s.room] += bytes.Count(s.text, []byte("\n"))
		}
	}
	for _, r := range rooms {
		if lines[r.path] > r.budget {
			t.Errorf("room %q has %d lines, its budget is %d", r.path, lines[r.path], r.budget)
		}
	}
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxFile
		if s.test {
			limit = maxTestFile
		}
		if n := bytes.Count(s.text, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines: over %d it is two files", s.path, n, limit)
		}
		if s.test || s.room == "osiertest" {
			continue // tables of tests read from top to bottom
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			from, to := s.fset.Position(f.Pos()).Line, s.fset.Position(f.End()).Line
			if n := to - from + 1; n > maxFunc {
				t.Errorf("%s:%d: %s has %d lines: over %d it is two functions", s.path, from, f.Name.Name, n, maxFunc)
			}
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.room, "cmd/") || strings.HasPrefix(s.room, "examples") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s:%d: %s has no comment", s.path, s.fset.Position(d.Pos()).Line, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil && ts.Comment == nil {
						t.Errorf("%s:%d: %s has no comment", s.path, s.fset.Position(ts.Pos()).Line, ts.Name.Name)
					}
				}
			}
		}
	}
}

// exportedReceiver reports whether a function is a method of an exported type,
// or no method. Error, Unwrap, Is and String say what they do by their names.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "Unwrap", "Is", "String":
		return false
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	switch x := typ.(type) {
	case *ast.IndexExpr:
		typ = x.X
	case *ast.IndexListExpr:
		typ = x.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// snippet marks a Go block of a Markdown file that is cut from an example:
// <!-- snippet: path/to/file.go name --> before the block, and the lines
// between "// snippet: name" and "// end" in the file.
var snippet = regexp.MustCompile("(?s)<!-- snippet: (\\S+) (\\S+) -->\n```go\n(.*?)```")

func TestSnippetsInDocsAreCutFromExamples(t *testing.T) {
	var docs []string
	for _, pattern := range []string{"*.md", "docs/*.md", "pot/*.md", "pocket/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range snippet.FindAllStringSubmatch(string(text), -1) {
			src, err := os.ReadFile(filepath.Join(root, m[1]))
			if err != nil {
				t.Errorf("%s: %v", doc, err)
				continue
			}
			if want := cut(string(src), m[2]); want != m[3] {
				t.Errorf("%s: the snippet %s of %s differs; want:\n%s", doc, m[2], m[1], want)
			}
		}
	}
}

// cut takes a named piece out of a source and removes its indentation.
func cut(src, name string) string {
	_, rest, _ := strings.Cut(src, "// snippet: "+name+"\n")
	piece, _, _ := strings.Cut(rest, "// end\n")
	lines := strings.Split(strings.TrimRight(piece, "\t \n"), "\n")
	indent := len(lines[0]) - len(strings.TrimLeft(lines[0], "\t"))
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, strings.Repeat("\t", indent))
	}
	return strings.Join(lines, "\n") + "\n"
}
