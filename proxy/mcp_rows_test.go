package proxy

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// mcpRow is a report about another proxy or server of MCP or A2A, by its row in the log of reports: what the report says,
// and what has to happen.
type mcpRow struct {
	name   string
	change func(*settings)
	check  func(t *testing.T, w *world, node *peer)
}

// runRows has a world with a server of MCP for each row.
func runRows(t *testing.T, rows []mcpRow) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, node := newMCPWorld(t, r.change)
				r.check(t, w, node)
			})
		})
	}
}

// passTime lets time pass, of the bubble that the caller is in, and what is due happen.
func passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// rowsElsewhere are the rows that a test elsewhere covers whole: the rows, its folder, its name, and the name of the case
// where it has several. The others are in TestRowsOfIDs, TestRowsOfLateMessages, TestRowsOfSharedState, TestRowsOfLinks,
// TestRowsOverHTTP and TestRowsOfAgents.
var rowsElsewhere = []struct{ rows, folder, test, part string }{
	{"1", "proxy", "TestMCPOverHTTP", "requests at once with one id, on one session"},
	{"3, 4", "proxy", "TestMCPReports", "clients with equal ids get their own answers, in any order"},
	{"5, 26, 32", "proxy", "TestCrowd", ""},
	{"8, 11", "proxy", "TestMCPReports", "ids keep their type, their spelling and their size"},
	{"13", "proxy", "TestMCPReports", "an error under no id is nobody's"},
	{"16", "proxy", "TestMCPReports", "a notification is not answered, and stays one"},
	{"18", "proxy", "TestMCPOverHTTP", "batches, in the revision that has them"},
	{"20", "proxy", "TestMCPReports", "a cancel names the call of its client, ahead of the answer"},
	{"28, 30", "proxy", "TestMCPReports", "a timeout is told to the server, and by setting"},
	{"32, 33, 34", "proxy", "TestMCPReports", "logs and requests of the server are for one client, or for none"},
	{"35, 68", "proxy", "TestMCPOverHTTP", "what belongs to a call comes with its answer, and nothing else does"},
	{"37", "proxy", "TestMCPReports", "resources are subscribed to once, and their changes come to subscribers"},
	{"40", "proxy", "TestMCPReports", "who listens is told when idmux ends"},
	{"41", "proxy", "TestMCPReports", "tasks are their client's"},
	{"42, 53", "internal/mcphttp", "TestSessionOfClient", ""},
	{"47, 73", "proxy", "TestMCPReports", "a request right after the handshake is answered, and pings at once"},
	{"50", "proxy", "TestMCPOverHTTP", "the session has one header, a name of its own, and is its client's"},
	{"54", "proxy", "TestMCPReports", "the version is the server's"},
	{"57", "internal/blackbox", "TestChildrenOfManySessions", ""},
	{"63", "internal/blackbox", "TestAChildThatDies", ""},
	{"64", "internal/blackbox", "TestUpstreamComesLate", ""},
	{"70", "proxy", "TestMCPOverHTTP", "a stream that is lost goes on where it was, and cancels nothing"},
	{"71", "proxy", "TestMCPOverHTTP", "a slow answer is a stream that can be gone on with before anything has come"},
	{"79", "proxy", "TestAgentStreamsOverHTTP", "lines"},
	{"81", "proxy", "TestCardNamesTheProxy", "where it came"},
}

// allRows are the rows of the log that ask something of idmux; those about poison are in TestPoison and its kin.
var allRows = []int{
	1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 22, 23, 25, 26, 28, 30, 32, 33, 34, 35, 36, 37, 40, 41, 42,
	47, 50, 51, 53, 54, 57, 63, 64, 66, 68, 70, 71, 72, 73, 79, 81, 83,
}

// TestAllRows wants a test for each row, here or elsewhere.
func TestAllRows(t *testing.T) {
	covered := make(map[string]bool)
	note := func(rows string) {
		for row := range strings.SplitSeq(rows, ", ") {
			covered[row] = true
		}
	}
	for _, r := range rowsElsewhere {
		note(r.rows)
	}
	named := regexp.MustCompile(`"rows? ([0-9, ]+): `)
	for _, pattern := range []string{"mcp_rows_*_test.go", "a2a_rows_test.go"} {
		files, _ := filepath.Glob(pattern) // the pattern is sound
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range named.FindAllStringSubmatch(string(text), -1) {
				note(m[1])
			}
		}
	}
	for _, row := range allRows {
		if !covered[strconv.Itoa(row)] {
			t.Errorf("row %d has no test", row)
		}
	}
}

// TestRowsElsewhere wants the tests to exist that the list names.
func TestRowsElsewhere(t *testing.T) {
	for _, r := range rowsElsewhere {
		files, _ := filepath.Glob(filepath.Join("..", filepath.FromSlash(r.folder), "*_test.go")) // the pattern is sound
		test, part := false, r.part == ""
		for _, f := range files {
			if filepath.Base(f) == "mcp_rows_test.go" {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			test = test || strings.Contains(string(text), "\nfunc "+r.test+"(")
			part = part || strings.Contains(string(text), `{"`+r.part+`", `) || strings.Contains(string(text), `"`+r.part+`": `)
		}
		if !test || !part {
			t.Errorf("rows %s: there is no test %s %s %q", r.rows, r.folder, r.test, r.part)
		}
	}
}
