package idem

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// doubt is the identity of an anonymous request that this process left Unknown.
type doubt struct {
	store          any // the journal's path, or the keystore itself
	scope, account string
	sum            string
}

// doubts are this process's, also those of clients and journals that were closed since:
// a loop may well open one in each round.
var doubts = struct {
	mu sync.Mutex
	of map[doubt]map[Key]struct{}
}{of: map[doubt]map[Key]struct{}{}}

func setDoubt(d doubt, key Key) {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	if doubts.of[d] == nil {
		doubts.of[d] = map[Key]struct{}{}
	}
	doubts.of[d][key] = struct{}{}
}

func doubtsOf(d doubt) []Key {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	return slices.Sorted(maps.Keys(doubts.of[d]))
}

// clearDoubt forgets the doubt that key stands for: its caller has heard the end.
func clearDoubt(key Key) {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	for d, keys := range doubts.of {
		if delete(keys, key); len(keys) == 0 {
			delete(doubts.of, d)
		}
	}
}

// doubt is how the request of in would be known if it were left Unknown.
func (c *Client) doubt(in *intent) doubt {
	d := doubt{store: c.ks, scope: c.opts.Scope, account: in.account, sum: string(in.sum)}
	if journal, ok := c.ks.(interface{ Path() string }); ok {
		d.store = journal.Path()
	}
	return d
}

// inDoubt refuses an anonymous request equal to one that this process left Unknown:
// it is most likely the same, sent again by a loop around us.
func (c *Client) inDoubt(in *intent) error {
	for _, key := range doubtsOf(c.doubt(in)) {
		f, err := c.entries.byKey(in.ctx, key)
		switch {
		case errors.Is(err, ErrNotFound): // withdrawn since
			clearDoubt(key)
		case err == nil && f.head.settledNotDone():
			clearDoubt(key)
		case err == nil:
			return &doubtError{key: key, fate: f.head.Fate}
		default:
			return &doubtError{key: key, err: err}
		}
	}
	return nil
}

// leaveDoubt remembers an anonymous request that a call leaves Unknown, or Done
// without its result, so that an equal one isn't sent under another key. The doubt
// ends when WithKey has continued it to its end. It runs deferred: also a panic
// leaves Unknown.
func (d *call) leaveDoubt(o *outcome) {
	anonymous := !d.in.named()
	if anonymous && !o.final && o.fate != FateNotDone {
		setDoubt(d.client.doubt(d.in), d.head.Key)
	}
	if !anonymous && o.final {
		clearDoubt(d.head.Key)
	}
}

// doubtError carries what is known of the entry in doubt.
type doubtError struct {
	key  Key
	fate Fate
	err  error // of the journal
}

func (e *doubtError) Error() string {
	return "an equal request was left Unknown; WithKey continues it"
}

func (e *doubtError) Unwrap() []error { return []error{ErrInDoubt, e.err} }
