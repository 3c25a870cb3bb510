package engine

import (
	"errors"

	"github.com/osierdb/osier"
)

// enforce puts an eager view in force.
func (e *Engine) enforce(ix *index) error {
	return viewError(osier.KindUnsupported, ix.db, ix.name, errors.New("eager views are not kept yet"))
}
