//go:build race

package rewrite

// raceDetector is on: it allocates where the code does not.
const raceDetector = true
