//go:build !race

package engine

// raceEnabled tells whether the race detector is on, with which everything
// takes several times as long.
const raceEnabled = false
