//go:build !race

package blackbox

// RaceDetector says whether the command under test is built with the race detector.
const RaceDetector = false
