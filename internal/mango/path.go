package mango

import "strings"

// splitPath returns the names of a dotted path. A backslash takes the special
// meaning from a dot, a backslash, or a dollar sign in front. Empty names are
// refused.
func splitPath(field string) (path []string, ok bool) {
	if strings.IndexByte(field, '\\') < 0 {
		for name := range strings.SplitSeq(field, ".") {
			if name == "" {
				return nil, false
			}
			path = append(path, name)
		}
		return path, true
	}
	var name []byte
	for i := 0; i < len(field); i++ {
		switch c := field[i]; {
		case c == '\\' && i+1 < len(field):
			i++
			name = append(name, field[i])
		case c == '.':
			if len(name) == 0 {
				return nil, false
			}
			path, name = append(path, string(name)), name[:0]
		default:
			name = append(name, c)
		}
	}
	return append(path, string(name)), len(name) > 0
}

// joinPath returns the path whose names splitPath returns.
func JoinPath(path []string) string {
	var b strings.Builder
	for i, name := range path {
		if i > 0 {
			b.WriteByte('.')
		} else if strings.HasPrefix(name, "$") {
			b.WriteByte('\\')
		}
		for k := range len(name) {
			if name[k] == '.' || name[k] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(name[k])
		}
	}
	return b.String()
}

// maxPathBytes is how long the names of a path are together, so that a selector
// in which many conditions share a long name cannot grow when it is written out.
const maxPathBytes = 4096

func pathBytes(path []string) int {
	n := 0
	for _, name := range path {
		n += len(name)
	}
	return n
}

// A scope is a condition, and the tree of the paths it needs of one value, so
// that one walk over the value finds them all.
type scope struct {
	root  *condition
	tree  node
	slots int
	id    int // which kids of the tree are these fields, which bodies do not hold; or -1
	rev   int

	seek *seek // how the kids are found in valid text without a walk, if they can be
}

// A node is a name of a path, or several paths' common name.
type node struct {
	name   string
	index  int // of an array's element, if name is one; else -1
	slot   int // of the path that ends here, -1 if none does
	kids   []node
	byName map[string]int // of kids, if they are many
	low    int            // the slots of the node and what is below: [low, high)
	high   int
}

// manyKids is from how many kids on a map finds a name sooner than comparisons.
const manyKids = 8

// newScope numbers the paths of c and writes their numbers into its leaves.
func newScope(c *condition) scope {
	s := scope{root: c, id: -1, rev: -1}
	s.tree = node{index: -1, slot: -1}
	c.leaves(func(c *condition) { s.tree.add(c.path).slot = 0 })
	s.tree.number(&s.slots)
	c.leaves(func(c *condition) { c.slot = s.tree.add(c.path).slot })
	for i := range s.tree.kids {
		switch kid := &s.tree.kids[i]; kid.name {
		case "_id":
			s.id = i
		case "_rev":
			s.rev = i
		}
	}
	s.seek = newSeek(&s)
	return s
}

// needs reports whether a path begins with the name.
func (s *scope) needs(name string) bool { return s.tree.find(name) >= 0 }

// add returns the node of a path, made if need be.
func (n *node) add(path []string) *node {
	for _, name := range path {
		i := n.find(name)
		if i < 0 {
			i = len(n.kids)
			n.kids = append(n.kids, node{name: name, index: arrayIndex(name), slot: -1})
			if i == manyKids {
				n.byName = map[string]int{}
				for i := range n.kids {
					n.byName[n.kids[i].name] = i
				}
			} else if i > manyKids {
				n.byName[name] = i
			}
		}
		n = &n.kids[i]
	}
	return n
}

// number gives slots in depth-first order.
func (n *node) number(next *int) {
	n.low = *next
	if n.slot >= 0 {
		n.slot = *next
		*next++
	}
	for i := range n.kids {
		n.kids[i].number(next)
	}
	n.high = *next
}

// find returns the place of the kid of a name, or -1.
func (n *node) find(name string) int {
	if n.byName != nil {
		if i, ok := n.byName[name]; ok {
			return i
		}
		return -1
	}
	for i := range n.kids {
		if n.kids[i].name == name {
			return i
		}
	}
	return -1
}

// arrayIndex returns the index that a name is, or -1.
func arrayIndex(name string) int {
	const mostDigits = 9
	if len(name) > mostDigits || len(name) > 1 && name[0] == '0' {
		return -1
	}
	n := 0
	for i := range len(name) {
		if name[i]-'0' > 9 {
			return -1
		}
		n = n*10 + int(name[i]-'0')
	}
	return n
}
