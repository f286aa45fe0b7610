package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// maxSocketPath is how many bytes the path of a unix socket can have here: what the system's structure takes, without the
// zero at its end.
var maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// CheckSocketPath says what is wrong with the path of a unix socket.
func CheckSocketPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path of a unix socket can have %d bytes, not %d: %q", maxSocketPath, len(path), path)
	}
	return nil
}

// ListenUnix listens on a unix socket whose file gets the permission bits of mode before anybody can connect, and is
// removed by Close. A socket that nobody listens on any more is replaced; anything else in its place is an error.
func ListenUnix(path string, mode int) (net.Listener, error) {
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// On Linux the file gets no more than what the socket has. Other systems refuse; there, Chmod comes after.
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode)) })
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	u := ln.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return &unixListener{UnixListener: u, path: path, info: info}, nil
}

// removeStale removes a socket's file that was left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is no socket; it is left alone", path)
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s: another process listens there", path), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("is somebody listening there? %w", err)
}

// unixListener removes its file at the end, if it still is its own.
type unixListener struct {
	*net.UnixListener
	path string
	info fs.FileInfo
}

func (u *unixListener) Close() error {
	err := u.UnixListener.Close()
	if now, serr := os.Lstat(u.path); err == nil && serr == nil && os.SameFile(now, u.info) {
		err = os.Remove(u.path)
	}
	return err
}
