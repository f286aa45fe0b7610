package upstream

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// lookAgain is how long the content of a file with credentials is believed.
const lookAgain = time.Second

// maxCredentials is how many bytes such a file may have.
const maxCredentials = 4 << 10

// credentials are a user and a password in a file that others write: bitcoind makes its .cookie at each start. It is
// looked at when they are needed. Safe for concurrent use; nil stands for none.
type credentials struct {
	path    string
	looked  atomic.Int64 // when the file was read, in ns
	current atomic.Pointer[credential]
}

type credential struct {
	header string // Authorization (RFC 7617)
	err    error
}

func newCredentials(path string) *credentials {
	if path == "" {
		return nil
	}
	return &credentials{path: path}
}

// header returns the header's value, empty for none.
func (c *credentials) header() (string, error) {
	if c == nil {
		return "", nil
	}
	now, last := time.Now().UnixNano(), c.looked.Load()
	cur := c.current.Load()
	if cur != nil && (now-last < int64(lookAgain) || !c.looked.CompareAndSwap(last, now)) {
		return cur.header, cur.err
	}
	cur = readCredential(c.path)
	c.current.Store(cur)
	c.looked.Store(now)
	return cur.header, cur.err
}

// doubt has the file read anew: what it said was not taken.
func (c *credentials) doubt() {
	if c != nil {
		c.looked.Store(0)
	}
}

func readCredential(path string) *credential {
	f, err := os.Open(path)
	if err != nil {
		return &credential{err: fmt.Errorf("auth_file: %w", err)}
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	line := strings.TrimRight(string(data), "\r\n")
	switch {
	case err != nil:
		return &credential{err: fmt.Errorf("auth_file: %w", err)}
	case len(data) > maxCredentials, !strings.Contains(line, ":"), strings.ContainsAny(line, "\r\n"):
		return &credential{err: fmt.Errorf("auth_file: %s: %w", path, errCredentials)}
	}
	return &credential{header: "Basic " + base64.StdEncoding.EncodeToString([]byte(line))}
}

var errCredentials = errors.New("must have one line, user:password")
