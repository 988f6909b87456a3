package idem

import (
	"reflect"
	"sync"
)

// hub is what the clients of one keystore share within this process: who they are,
// which requests were left Unknown here, and whom to wake when work arrives.
type hub struct {
	mu      sync.Mutex
	clients map[*Client]struct{}
	wakers  map[chan struct{}]string // channel of a Run to its scope
}

// hubs finds the hub of a keystore as long as it has clients. A keystore can't
// hold it itself: it is anybody's implementation.
var hubs = struct {
	mu sync.Mutex
	of map[Keystore]*hub
}{of: map[Keystore]*hub{}}

// join adds c to the hub of its keystore, if it agrees with those already there.
func join(c *Client) (*hub, error) {
	if !reflect.TypeOf(c.ks).Comparable() {
		return nil, &InvalidError{"Keystore", reflect.TypeOf(c.ks).String(), "must be comparable, such as a pointer"}
	}
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	h := hubs.of[c.ks]
	if h == nil {
		h = &hub{clients: map[*Client]struct{}{}, wakers: map[chan struct{}]string{}}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for other := range h.clients {
		if err := agree(&c.opts, &other.opts); err != nil {
			return nil, err
		}
	}
	h.clients[c] = struct{}{}
	hubs.of[c.ks] = h
	return h, nil
}

// agree keeps one client from resuming another's entries with its own credentials.
func agree(mine, theirs *Options) error {
	switch {
	case mine.Scope == "" || theirs.Scope == "":
		return &InvalidError{"Options.Scope", mine.Scope, "must not be empty where clients share a keystore"}
	case mine.Scope != theirs.Scope:
		return nil
	case mine.Account != theirs.Account:
		return &InvalidError{"Options.Account", mine.Account, "differs from that of an open client of the same scope"}
	}
	a, b := mine.Dialect, theirs.Dialect
	a.NewKey, b.NewKey = nil, nil
	if !reflect.DeepEqual(withoutFuncs(a), withoutFuncs(b)) {
		return &InvalidError{"Options.Dialect", mine.Dialect.Name, "differs from that of an open client of the same scope"}
	}
	return nil
}

// withoutFuncs makes d comparable: functions never are.
func withoutFuncs(d Dialect) Dialect {
	d.NewKey = nil
	routes := make([]Dialect, len(d.Routes))
	for i, r := range d.Routes {
		r.NewKey = nil
		routes[i] = r
	}
	d.Routes = routes
	return d
}

func (h *hub) leave(c *Client) {
	hubs.mu.Lock()
	defer hubs.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
	if len(h.clients) == 0 && hubs.of[c.ks] == h {
		delete(hubs.of, c.ks)
	}
}

// wake tells every Run of scope that there is work.
func (h *hub) wake(scope string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, s := range h.wakers {
		if s == scope {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

func (h *hub) listen(scope string) (ch chan struct{}, stop func()) {
	ch = make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wakers[ch] = scope
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.wakers, ch)
	}
}

// isNil tells a nil interface and a nil pointer in one.
func isNil(ks Keystore) bool {
	v := reflect.ValueOf(ks)
	return ks == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
