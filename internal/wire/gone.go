package wire

import "golang.org/x/sys/unix"

// gone asks the system whether anybody is left who would read: the far end of a unix socket or a pipe was closed, or a
// connection was reset.
func (s *Socket) gone() bool {
	if s.rawOut == nil {
		return false
	}
	var gone bool
	err := s.rawOut.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	})
	return err != nil || gone // it was closed on this side
}
