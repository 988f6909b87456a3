package idem

// point is one of the five places at which a call can die, between which everything
// that matters is decided. docs/design.md tells what is known after each.
type point int

const (
	pointUncommitted point = iota // before commit
	pointCommitted                // committed, not sent
	pointSent                     // sent, no answer
	pointAnswered                 // answered, not committed
	pointSettled                  // committed
)

// atPoint is set by tests that die there.
var atPoint func(point)

func (c *Client) at(p point) {
	if atPoint != nil {
		atPoint(p)
	}
}
