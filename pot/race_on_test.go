//go:build race

package pot

// raceEnabled: the race detector lets pools drop what they hold at random.
const raceEnabled = true
