//go:build !race

package rewrite

const raceDetector = false
