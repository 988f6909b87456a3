package limit

import "container/list"

// recent is a map that holds at most limit values. Whoever names origins, a
// caller's URLs or a provider's redirects, would otherwise decide how much
// memory the client takes. It isn't safe for concurrent use: its owner locks.
type recent[V any] struct {
	limit int
	items map[string]*list.Element
	order *list.List // of recentItem[V], the most recently used first
}

type recentItem[V any] struct {
	name  string
	value V
}

// newRecent returns an empty map for limit values.
func newRecent[V any](limit int) *recent[V] {
	return &recent[V]{limit: limit, items: make(map[string]*list.Element), order: list.New()}
}

// get returns the value of a name, which is now the most recently used one.
func (r *recent[V]) get(name string) (value V, ok bool) {
	e, ok := r.items[name]
	if !ok {
		return value, false
	}
	r.order.MoveToFront(e)
	return e.Value.(recentItem[V]).value, true
}

// add stores the value of a name that isn't there yet. If that is one too many,
// it takes out and returns the least recently used of the values that expendable
// holds true for, or, if there is none, the least recently used of all.
func (r *recent[V]) add(name string, value V, expendable func(V) bool) (out V, evicted bool) {
	if len(r.items) >= r.limit {
		out, evicted = r.evict(expendable), true
	}
	r.items[name] = r.order.PushFront(recentItem[V]{name, value})
	return out, evicted
}

// evict takes out one value of a map that isn't empty.
func (r *recent[V]) evict(expendable func(V) bool) V {
	victim := r.order.Back()
	for e := victim; e != nil; e = e.Prev() {
		if expendable(e.Value.(recentItem[V]).value) {
			victim = e
			break
		}
	}
	item := r.order.Remove(victim).(recentItem[V])
	delete(r.items, item.name)
	return item.value
}
