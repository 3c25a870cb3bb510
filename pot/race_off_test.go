//go:build !race

package pot

const raceEnabled = false
