package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// process is one that --pid names: its CPU time and memory are measured.
type process struct {
	name string
	pid  int
	tree bool // its descendants too, as for nginx, whose workers are children
}

// usage is what processes have used: CPU time since they started, and memory
// resident now, in bytes.
type usage struct {
	user, system time.Duration
	resident     int64
}

// tick is the unit of CPU times in /proc, which Linux fixes for user space.
const tick = 10 * time.Millisecond

// parseProcess reads NAME=PID or NAME=PID,tree.
func parseProcess(text string) (process, error) {
	var p process
	name, rest, ok := strings.Cut(text, "=")
	pid, tree, comma := strings.Cut(rest, ",")
	n, err := strconv.Atoi(pid)
	if !ok || name == "" || err != nil || n <= 0 || comma && tree != "tree" {
		return p, fmt.Errorf("--pid %q: want NAME=PID or NAME=PID,tree", text)
	}
	return process{name: name, pid: n, tree: comma}, nil
}

// watched is a process and, where asked for, its descendants at the time when
// the watch began.
type watched struct {
	process
	pids []int
}

// watch begins to watch processes, which have to be running.
func watch(ps []process) ([]watched, error) {
	ws := make([]watched, len(ps))
	for i, p := range ps {
		ws[i] = watched{p, []int{p.pid}}
		if p.tree {
			ws[i].pids = append(ws[i].pids, descendants(p.pid)...)
		}
	}
	_, err := usages(ws)
	return ws, err
}

// usages reads what several processes use. The times hold all threads, those
// that have ended too.
func usages(ws []watched) ([]usage, error) {
	us := make([]usage, len(ws))
	for i, w := range ws {
		for _, pid := range w.pids {
			u, _, err := statOf(pid)
			if err != nil {
				return nil, fmt.Errorf("process %s: %w", w.name, err)
			}
			us[i].user += u.user
			us[i].system += u.system
			us[i].resident += u.resident
		}
	}
	return us, nil
}

// statOf reads /proc/PID/stat, proc(5).
func statOf(pid int) (u usage, parent int, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return u, 0, err
	}
	// The command's name is in parentheses and may hold anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const firstField = 3
	numbers := make(map[int]int64)
	for _, field := range []int{4, 14, 15, 24} {
		if field-firstField >= len(fields) {
			return u, 0, fmt.Errorf("/proc/%d/stat has no field %d", pid, field)
		}
		if numbers[field], err = strconv.ParseInt(fields[field-firstField], 10, 64); err != nil {
			return u, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
	}
	return usage{
		user:     time.Duration(numbers[14]) * tick,
		system:   time.Duration(numbers[15]) * tick,
		resident: numbers[24] * int64(os.Getpagesize()),
	}, int(numbers[4]), nil
}

// busyTime returns for how long the machine's processors have been busy, summed
// over all of them, since it started; proc(5).
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	const idle, ioWait, steal = 4, 5, 8 // guest time, which follows, is in user's already
	if len(fields) <= steal {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks int64
	for i, field := range fields[1 : steal+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		if i+1 != idle && i+1 != ioWait {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}

// descendants returns the children of pid, theirs, and so on.
func descendants(pid int) []int {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is sound
	children := make(map[int][]int)
	for _, name := range names {
		child, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if _, parent, err := statOf(child); err == nil { // else it has ended
			children[parent] = append(children[parent], child)
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}
