package rewrite

// Limits bound what one frame may cost. A field that is zero or negative
// stands for its value in [DefaultLimits], so there is no way to ask for a
// frame without bounds by leaving something out.
type Limits struct {
	// Size is the length of a frame in bytes.
	Size int
	// Depth is how many arrays and objects may be open at once. The message
	// counts as one, and the array of a batch as another.
	Depth int
	// Batch is the number of members of a batch.
	Batch int
	// ID and Method are the lengths in bytes of these members' tokens, quotes
	// and escapes included.
	ID     int
	Method int
}

// DefaultLimits returns what fits nearly all traffic: 5 MiB, 128 levels (the
// depth at which common strict parsers stop), 1000 members, ids of 1024 bytes
// and methods of 256.
func DefaultLimits() Limits {
	return Limits{Size: 5 << 20, Depth: 128, Batch: 1000, ID: 1024, Method: 256}
}

// effective fills the fields that were left out.
func (l Limits) effective() Limits {
	d := DefaultLimits()
	fill := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	fill(&l.Size, d.Size)
	fill(&l.Depth, d.Depth)
	fill(&l.Batch, d.Batch)
	fill(&l.ID, d.ID)
	fill(&l.Method, d.Method)
	return l
}

// Peer says whose frames a [Parser] reads.
type Peer uint8

const (
	// Client is strict: what a client sends goes to a connection that others
	// share.
	Client Peer = iota
	// Server is lenient where only its own answer is at stake: any or no
	// jsonrpc, error beside result, params of any type. It is as strict about
	// ambiguous members.
	Server
)
