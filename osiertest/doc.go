// Package osiertest judges implementations of [osier.Backend].
//
// [Run] is the conformance suite: a chapter of tests for each promise of a
// store, written with the handles that programs use. An implementation calls it
// in one line:
//
//	func TestConformance(t *testing.T) {
//		osiertest.Run(t, osiertest.Harness{New: open, Reopen: reopen})
//	}
//
// [Model] is the plain store beside which the others are laid: everything in
// maps and slices, copied whole where one state must be seen. It is judged by
// the suite first, and then serves as the judge of random histories.
//
// A [Workload] is such a history: a list of operations that is generated from a
// seed, printed a line each, read back, and carried out against any store, each
// giving a line of a transcript. Equal stores give equal transcripts.
package osiertest
