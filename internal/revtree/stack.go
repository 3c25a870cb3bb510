package revtree

// A stack holds its first values in itself, so that one which stays small costs
// no allocation as part of a local variable.
type stack[T any] struct {
	n     int
	fixed [48]T
	heap  []T // all values, once they are too many for fixed
}

func (s *stack[T]) push(v T) {
	if s.n < len(s.fixed) && s.heap == nil {
		s.fixed[s.n] = v
	} else {
		s.spill(v)
	}
	s.n++
}

func (s *stack[T]) spill(v T) {
	if s.heap == nil {
		s.heap = append(make([]T, 0, 4*len(s.fixed)), s.fixed[:]...)
	}
	s.heap = append(s.heap[:s.n], v)
}

// from returns the values from the i-th on. They are valid until the next push.
func (s *stack[T]) from(i int) []T {
	if s.heap == nil {
		return s.fixed[i:s.n]
	}
	return s.heap[i:s.n]
}

// top returns the last value, valid until the next push.
func (s *stack[T]) top() *T {
	if s.heap == nil {
		return &s.fixed[s.n-1]
	}
	return &s.heap[s.n-1]
}
