package configs

import (
	"fmt"
	"slices"
	"strings"
)

// didYouMean is the end of a message about an unknown word.
func didYouMean(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", word)
}

// closest returns the candidate that word is most likely a slip of, or "".
// Case, dashes and underscores do not count.
func closest(word string, candidates []string) string {
	best, least := "", 1+min(2, len(word)/3)
	for _, c := range candidates {
		if d := distance(plain(word), plain(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// closestPath returns the path whose last part word is a slip of, or "". Of the
// items of a list, it is any one.
func closestPath(word string, paths []string) string {
	certain := func(path string) bool { return strings.Contains(strings.ReplaceAll(path, anyOne, ""), "[") }
	paths = slices.DeleteFunc(slices.Clone(paths), certain)
	last := make([]string, len(paths))
	for i, p := range paths {
		last[i] = p[strings.LastIndexByte(p, '.')+1:]
	}
	found := closest(word, last)
	for i, l := range last {
		if l == found {
			return paths[i]
		}
	}
	return ""
}

// plain drops what spellings of the same word differ in.
func plain(word string) string {
	return strings.Map(func(c rune) rune {
		if c == '_' || c == '-' || c == ' ' {
			return -1
		}
		return c
	}, strings.ToLower(word))
}

// distance is the number of characters to insert, drop, replace or swap with
// their neighbour that turn a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, above, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(y)]
}
