package pocket

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// A Type ties a Go type to the name under which its values stand in the file.
type Type struct {
	name string
	typ  reflect.Type
}

// TypeOf registers T under name, when it is put into Options.Types. Renaming
// the Go type later does no harm; changing the name does.
func TypeOf[T any](name string) Type {
	return Type{name: name, typ: reflect.TypeFor[T]()}
}

// registry numbers type names. The Go types are fixed when a store is opened;
// names are added when the file or a Raw value brings an unknown one.
type registry struct {
	byGo map[reflect.Type]*goType // of the type and of a pointer to it
	goOf []reflect.Type           // by number; nil beyond what was registered
	last atomic.Pointer[goType]   // found last: most stores save one type

	mu    sync.Mutex // guards additions to names and ids
	names atomic.Pointer[[]string]
	ids   atomic.Pointer[map[string]uint16]
}

// goType is a registered Go type, or a pointer to one.
type goType struct {
	typ  reflect.Type
	id   uint16
	flat *flatStruct // nil when encoding/json has to encode it
}

// lookup returns what is registered for the type of a value or nil.
func (g *registry) lookup(t reflect.Type) *goType {
	if last := g.last.Load(); last != nil && last.typ == t {
		return last
	}
	x := g.byGo[t]
	if x != nil {
		g.last.Store(x)
	}
	return x
}

const maxTypes = 1<<16 - 1

func newRegistry(types []Type) (*registry, error) {
	g := &registry{byGo: make(map[reflect.Type]*goType), goOf: make([]reflect.Type, 1, len(types)+1)}
	names, ids := make([]string, 1, len(types)+1), make(map[string]uint16)
	for _, t := range types {
		if t.name == "" || t.typ == nil {
			return nil, invalid("a type needs a name and comes from TypeOf")
		}
		if _, ok := ids[t.name]; ok {
			return nil, invalid("type name %q registered twice", t.name)
		}
		if slices.Contains(g.goOf, t.typ) {
			return nil, invalid("type %v registered twice", t.typ)
		}
		if len(names) > maxTypes {
			return nil, invalid("more than %d types", maxTypes)
		}
		id := uint16(len(names))
		ids[t.name] = id
		names, g.goOf = append(names, t.name), append(g.goOf, t.typ)
	}
	g.names.Store(&names)
	g.ids.Store(&ids)
	for i, t := range g.goOf[1:] {
		x := goType{typ: t, id: uint16(i + 1), flat: flatOf(t)}
		g.byGo[t] = &x
		if p := reflect.PointerTo(t); !slices.Contains(g.goOf, p) {
			g.byGo[p] = &goType{typ: p, id: x.id, flat: x.flat}
		}
	}
	return g, nil
}

func (g *registry) name(id uint16) string { return (*g.names.Load())[id] }

// goType returns the registered Go type, nil for a plain or unknown one.
func (g *registry) goType(id uint16) reflect.Type {
	if int(id) >= len(g.goOf) {
		return nil
	}
	return g.goOf[id]
}

// intern returns the number of a name.
func (g *registry) intern(name []byte) (uint16, error) {
	if id, ok := (*g.ids.Load())[string(name)]; ok {
		return id, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	old := *g.ids.Load()
	if id, ok := old[string(name)]; ok {
		return id, nil
	}
	names := *g.names.Load()
	if len(names) > maxTypes {
		return 0, fmt.Errorf("more than %d type names", maxTypes)
	}
	id := uint16(len(names))
	// Readers hold the old slice by its length, so appending is safe.
	names = append(names, string(name))
	ids := maps.Clone(old)
	ids[string(name)] = id
	g.names.Store(&names)
	g.ids.Store(&ids)
	return id, nil
}
