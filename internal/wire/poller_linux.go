package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Poller reads for many connections on one goroutine: it waits until any of them has something and calls its Member.
// Compared with a goroutine for each connection it saves the stack, the wake-up and a read that finds nothing; and what
// came from many connections at once can be passed on in one write.
//
// It is an epoll instance (Linux) whose own descriptor the Go runtime waits for, so that an idle poller costs no thread.
type Poller struct {
	// Dry is called when every member that was ready has been looked at. Set before Run.
	Dry func()

	file *os.File // the epoll instance
	raw  syscall.RawConn
	wake [2]int // a pipe: written to by Kick

	events [256]syscall.EpollEvent // owned by Run
	n      int
	err    error

	mu      sync.Mutex
	members map[int32]Member
	kicked  []Member
	closed  bool
}

// NewPoller returns a poller that does nothing until Run.
func NewPoller() (*Poller, error) {
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &Poller{members: make(map[int32]Member)}
	if err := syscall.SetNonblock(ep, true); err != nil { // makes os.NewFile give it to the runtime's poller
		return nil, errors.Join(os.NewSyscallError("fcntl", err), syscall.Close(ep))
	}
	p.file = os.NewFile(uintptr(ep), "epoll")
	if err := syscall.Pipe2(p.wake[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, errors.Join(os.NewSyscallError("pipe2", err), p.file.Close())
	}
	p.raw, err = p.file.SyscallConn()
	if err == nil {
		err = p.control(syscall.EPOLL_CTL_ADD, p.wake[0])
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close frees the poller. Run must have returned, and every member left.
func (p *Poller) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return errors.Join(p.file.Close(), syscall.Close(p.wake[0]), syscall.Close(p.wake[1]))
}

// Run calls members until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() {
		_ = p.file.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed file
	})()
	for ctx.Err() == nil {
		if err := p.raw.Read(p.poll); err != nil {
			if ctx.Err() == nil {
				panic("wire: poller: " + err.Error())
			}
			return
		}
		for _, ev := range p.events[:max(p.n, 0)] {
			if ev.Fd == int32(p.wake[0]) {
				p.kicks()
				continue
			}
			p.mu.Lock()
			m := p.members[ev.Fd]
			p.mu.Unlock()
			if m != nil {
				m.Ready()
			}
		}
		if p.Dry != nil {
			p.Dry()
		}
		runtime.Gosched() // who has been given something to do goes first; meanwhile more may come
	}
}

// poll looks for events without waiting; false makes the runtime wait until there may be some.
func (p *Poller) poll(fd uintptr) bool {
	p.n, p.err = syscall.EpollWait(int(fd), p.events[:], 0)
	if p.err == syscall.EINTR {
		p.n = 0
		return true
	}
	if p.err != nil {
		panic(fmt.Sprintf("wire: epoll_wait: %v", p.err)) // the descriptor is ours and open
	}
	return p.n != 0
}

// Kick has m.Ready called soon, whether or not there is something to read. Safe for concurrent use.
func (p *Poller) Kick(m Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.kicked = append(p.kicked, m)
	if len(p.kicked) == 1 {
		_, _ = syscall.Write(p.wake[1], []byte{0}) // a full pipe wakes as well
	}
}

func (p *Poller) kicks() {
	var buf [64]byte
	_, _ = syscall.Read(p.wake[0], buf[:]) // empty is fine, too
	p.mu.Lock()
	list := p.kicked
	p.kicked = nil
	p.mu.Unlock()
	for _, m := range list {
		m.Ready()
	}
}

func (p *Poller) control(op, fd int) error {
	var err error
	cerr := p.raw.Control(func(ep uintptr) {
		ev := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP, Fd: int32(fd)}
		err = syscall.EpollCtl(int(ep), op, fd, &ev)
	})
	return errors.Join(cerr, os.NewSyscallError("epoll_ctl", err))
}

// join implements Polled.Join.
func (s *Socket) join(p *Poller, m Member) error {
	var err error
	cerr := s.raw.Control(func(fd uintptr) {
		p.mu.Lock()
		p.members[int32(fd)] = m
		p.mu.Unlock()
		err = p.control(syscall.EPOLL_CTL_ADD, int(fd))
	})
	return errors.Join(cerr, err)
}

// leave implements Polled.Leave.
func (s *Socket) leave(p *Poller) {
	// Control fails on a closed connection, whose descriptor has left by being closed.
	_ = s.raw.Control(func(fd uintptr) {
		p.mu.Lock()
		delete(p.members, int32(fd))
		p.mu.Unlock()
		_ = p.control(syscall.EPOLL_CTL_DEL, int(fd)) // fails only if it never joined
	})
}
