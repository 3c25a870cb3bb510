package engine

import (
	"context"
	"errors"

	"github.com/osierdb/osier"
	"github.com/osierdb/osier/internal/store"
)

// storeError gives an error of the layers below its Kind. An *osier.Error
// passes as it is.
func (e *Engine) storeError(step string, err error) error {
	if err == nil {
		return nil
	}
	var own *osier.Error
	if errors.As(err, &own) {
		return own
	}
	return &osier.Error{Kind: kindOf(err), Op: step, Err: err}
}

func kindOf(err error) osier.Kind {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return osier.KindCanceled
	case errors.Is(err, store.ErrLocked):
		return osier.KindLocked
	case errors.Is(err, store.ErrFormat):
		return osier.KindFormat
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, errRecord):
		return osier.KindCorrupt
	case errors.Is(err, store.ErrFull):
		return osier.KindFull
	case errors.Is(err, store.ErrClosed):
		return osier.KindClosed
	case errors.Is(err, store.ErrReadOnly):
		return osier.KindReadOnly
	case errors.Is(err, store.ErrTooLarge):
		return osier.KindTooLarge
	case errors.Is(err, store.ErrFenced):
		return osier.KindIO
	case errors.Is(err, store.ErrForeign):
		return osier.KindInvalid
	case errors.Is(err, store.ErrNotFound):
		return osier.KindNotFound
	}
	return osier.KindIO
}
