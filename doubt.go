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
func (s *entries) doubt(in *intent) doubt {
	d := doubt{store: s.ks, scope: s.scope, account: in.account, sum: string(in.sum)}
	if journal, ok := s.ks.(interface{ Path() string }); ok {
		d.store = journal.Path()
	}
	return d
}

// inDoubt refuses an anonymous request equal to one that this process left Unknown:
// it is most likely the same, sent again by a loop around us.
func (s *entries) inDoubt(in *intent) error {
	for _, key := range doubtsOf(s.doubt(in)) {
		f, err := s.byKey(in.ctx, key)
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
func (s *entries) leaveDoubt(in *intent, key Key, o *outcome) {
	switch {
	case in.named():
		if o.final {
			clearDoubt(key)
		}
	case !o.final && o.fate != FateNotDone:
		setDoubt(s.doubt(in), key)
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
