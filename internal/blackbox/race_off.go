//go:build !race

package blackbox

const raceDetector = false
