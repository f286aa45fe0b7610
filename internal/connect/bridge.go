package connect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idmux/idmux/internal/wire"
	"github.com/idmux/idmux/rewrite"
)

// queue is how many bytes may wait for either side before whoever brings more has to wait.
const queue = 4 << 20

// lastWords is how long the client may take for what is left for it at the end.
const lastWords = 10 * time.Second

// remote is the server's side.
type remote interface {
	// run brings what the server sends to the bridge, and returns why nothing more will come: when ctx ends, or earlier, which
	// is a loss.
	run(ctx context.Context) error

	// pass takes a message of the client over, borrowed until it returns; ids are of the requests in it. It may wait.
	pass(ctx context.Context, frame []byte, envs []rewrite.Envelope, ids []string)

	// flush sends what was passed so far.
	flush()

	// leave says goodbye: nothing more will be passed, and nothing is waited for any more. run is about to be told.
	leave()
}

// bridge is a client joined to a server.
type bridge struct {
	o       *Options
	client  wire.Conn
	out     *wire.Sender // to the client
	ledger  *ledger
	exits   atomic.Bool // the client's last message has told a language server to end
	remote  remote
	parsers sync.Pool // of *rewrite.Parser
}

var (
	// errDone ends a bridge that has nothing more to do.
	errDone = errors.New("connect: done")
	// ErrLost is returned where the server was lost before the client had left.
	ErrLost = errors.New("connection lost")
	// ErrUnanswered is returned where the client has left and its last requests were not answered in time.
	ErrUnanswered = errors.New("requests without an answer")
)

// Run joins the client to the server until either has ended or ctx ends, and returns when nothing of that runs any more: nil
// where the client has left, or ctx has ended, or the server has, as it was told.
func Run(ctx context.Context, o *Options) error {
	b := &bridge{o: o, ledger: newLedger()}
	b.client = wire.NewStream(o.Client, wire.StreamConfig{Framing: o.Framing, ReadLimit: o.Message, WriteTimeout: o.Write})
	b.out = wire.NewSender(b.client, wire.SenderConfig{Limit: queue, Keep: 64})
	t, err := o.target()
	if err == nil {
		b.remote, err = b.dial(ctx, t)
	}
	switch {
	case ctx.Err() != nil && b.remote == nil:
		return b.client.Close()
	case err != nil:
		return errors.Join(err, b.client.Close())
	}
	outside := ctx
	ctx, end := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		err := b.remote.run(ctx)
		switch bye := (*wire.CloseError)(nil); {
		case ctx.Err() != nil:
		case errors.As(err, &bye) && b.exits.Load() && b.ledger.count() == 0:
			end(errDone)
		default:
			end(fmt.Errorf("%w: %s: %w", ErrLost, t.url.Redacted(), err))
		}
	})
	group.Go(func() { end(b.read(ctx)) })
	<-ctx.Done()
	why := context.Cause(ctx)
	b.abandon(why)
	b.remote.leave()
	b.out.Flush()
	late := time.AfterFunc(lastWords, func() { _ = b.client.Close() }) // which frees who waits
	b.out.WaitBelow(1)
	late.Stop()
	err = b.client.Close()
	group.Wait()
	wire.Release(b.out.Stop())
	if errors.Is(why, errDone) || outside.Err() != nil {
		return err
	}
	return why
}

// read takes what the client says, and waits for the last answers.
func (b *bridge) read(ctx context.Context) error {
	p := b.parser(rewrite.Client)
	b.client.Listen(wire.Events{Idle: func() { b.remote.flush() }})
	for {
		frame, err := b.client.ReadFrame()
		var large *wire.TooLargeError
		switch {
		case err == nil:
			_, envs, _ := p.Parse(frame) // what is no message is the server's to refuse
			b.exits.Store(len(envs) == 1 && envs[0].Kind == rewrite.Notification && string(p.Name(frame, &envs[0])) == "exit")
			ids := b.ledger.ask(frame, envs)
			if ctx.Err() != nil { // what was open has been answered, and this may have come too late for that
				f := rewrite.NewFault(rewrite.ReasonUpstreamLost)
				b.fail(ids, f)
				continue
			}
			b.remote.pass(ctx, frame, envs, ids)
		case errors.As(err, &large):
			b.o.Warn(fmt.Sprintf("a message of more than %d bytes is not passed on", b.o.Message))
			b.refuse(string(rewrite.FindID(large.Head)), rewrite.NewFault(rewrite.ReasonTooLarge))
		default:
			b.remote.flush()
			if bye := (*wire.CloseError)(nil); !errors.As(err, &bye) {
				return fmt.Errorf("client: %w", b.out.Reason(err))
			}
			return b.awaitAnswers(ctx)
		}
	}
}

// awaitAnswers waits, within bounds, until no request is open.
func (b *bridge) awaitAnswers(ctx context.Context) error {
	late := time.NewTimer(b.o.Wait)
	defer late.Stop()
	for b.ledger.count() > 0 {
		select {
		case <-b.ledger.settled:
		case <-ctx.Done():
			return errDone
		case <-late.C:
			return fmt.Errorf("%w: %d, within %v", ErrUnanswered, b.ledger.count(), b.o.Wait)
		}
	}
	return errDone
}

// abandon answers what is open with an error.
func (b *bridge) abandon(why error) {
	reason := rewrite.ReasonUpstreamLost
	if errors.Is(why, ErrUnanswered) {
		reason = rewrite.ReasonTimeout
	}
	for _, id := range b.ledger.takeAll() {
		f := rewrite.NewFault(reason)
		f.Sent = true // it may have been
		b.refuse(id, f)
		b.ledger.done(1)
	}
}

// fail answers those of some requests that are open with an error.
func (b *bridge) fail(ids []string, f rewrite.Fault) {
	for _, id := range ids {
		if b.ledger.take(id) {
			b.refuse(id, f)
			b.ledger.done(1)
		}
	}
}

// refuse answers a request, which was taken from the ledger or is not in it, with an error.
func (b *bridge) refuse(id string, f rewrite.Fault) {
	if id == "" {
		id = nullID
	}
	frame := wire.NewFrame()
	frame.B = rewrite.AppendFault(frame.B, []byte(id), f)
	b.give(frame)
	b.out.Flush()
}

// give passes a frame to the client, waiting for room. Where the client is gone, so is the frame.
func (b *bridge) give(f *wire.Frame) { _ = b.out.EnqueueWait(f, nil) }

// deliver passes what the server has sent to the client; it leaves with the next flush.
func (b *bridge) deliver(frame []byte) {
	p := b.parser(rewrite.Server)
	_, envs, fault := p.Parse(frame)
	if !fault.Ok() {
		b.parsers.Put(p)
		b.o.Warn("the server has sent something that is no message: " + fault.Error())
		return
	}
	answered := b.ledger.answer(frame, envs)
	b.parsers.Put(p)
	f := wire.NewFrame()
	f.B = append(f.B, frame...)
	b.give(f)
	b.ledger.done(answered) // whoever waits for the last answer may end everything now
}

// tooLarge is deliver for the beginning of a frame that was too large.
func (b *bridge) tooLarge(head []byte) {
	b.o.Warn(fmt.Sprintf("the server has sent a message of more than %d bytes", b.o.Message))
	f := rewrite.NewFault(rewrite.ReasonResponseTooLarge)
	f.Sent = true
	if id := string(rewrite.FindID(head)); id != "" {
		b.fail([]string{id}, f)
	}
}

// parser returns a parser for what one side sends.
func (b *bridge) parser(peer rewrite.Peer) *rewrite.Parser {
	p, _ := b.parsers.Get().(*rewrite.Parser)
	if p == nil {
		p = new(rewrite.Parser)
	}
	p.Peer = peer
	p.Limits = rewrite.Limits{Size: b.o.Message, Depth: 10_000, Batch: 100_000, ID: 4096, Method: 4096}
	return p
}
