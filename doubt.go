package idem

import (
	"errors"
	"maps"
	"sync"
)

// doubt is the identity of an anonymous request that this process left Unknown.
type doubt struct {
	store          any // the journal's path, or the keystore itself
	scope, account string
	sum            string
}

// doubts are this process's, also those of clients and journals that were closed since:
// a loop may well open one in each round. The oldest go where there are too many.
var doubts = struct {
	mu    sync.Mutex
	of    map[doubt]map[Key]Fate // what was known of each when it was left
	byKey map[Key]doubt
	queue []Key // oldest first; some may be gone
}{of: map[doubt]map[Key]Fate{}, byKey: map[Key]doubt{}}

// maxDoubts bounds what callers that give up without names can make this process hold.
const maxDoubts = 100_000

func setDoubt(d doubt, key Key, fate Fate) {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	if doubts.of[d] == nil {
		doubts.of[d] = map[Key]Fate{}
	}
	if _, there := doubts.byKey[key]; !there {
		doubts.queue = append(doubts.queue, key)
	}
	doubts.of[d][key], doubts.byKey[key] = fate, d
	for len(doubts.byKey) > maxDoubts || len(doubts.queue) > 2*maxDoubts {
		oldest := doubts.queue[0]
		doubts.queue = doubts.queue[1:]
		dropDoubt(oldest)
	}
}

func doubtsOf(d doubt) map[Key]Fate {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	return maps.Clone(doubts.of[d])
}

// clearDoubt forgets the doubt that key stands for: its caller has heard the end.
func clearDoubt(key Key) {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	dropDoubt(key)
}

// raiseDoubt notes that what is in doubt was Done, where the journal could not take it.
func raiseDoubt(key Key) {
	doubts.mu.Lock()
	defer doubts.mu.Unlock()
	if d, there := doubts.byKey[key]; there {
		doubts.of[d][key] = FateDone
	}
}

// dropDoubt wants doubts.mu held.
func dropDoubt(key Key) {
	d, there := doubts.byKey[key]
	if !there {
		return
	}
	delete(doubts.byKey, key)
	if delete(doubts.of[d], key); len(doubts.of[d]) == 0 {
		delete(doubts.of, d)
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
	for key, was := range doubtsOf(s.doubt(in)) {
		f, err := s.byKey(in.ctx, key)
		gone := errors.Is(err, ErrNotFound)
		refused := err == nil && f.head.settledNotDone()
		switch {
		case was == FateDone: // and stays so, though its end was removed with it
			return &doubtError{key: key, fate: FateDone}
		case gone, refused: // withdrawn since, or found out
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
		} else if o.fate == FateDone {
			raiseDoubt(key)
		}
	case !o.final && o.fate != FateNotDone:
		setDoubt(s.doubt(in), key, o.fate)
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
