package sim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	ks "github.com/idem-go/idem/keystore"
)

// place is where a record stands in a scan. Times are text that sorts as they do.
type place struct{ at, key, scope string }

func (p place) compare(q place) int {
	return cmp.Or(strings.Compare(p.at, q.at), strings.Compare(p.key, q.key), strings.Compare(p.scope, q.scope))
}

func (p place) cursor() ks.Cursor { return ks.Cursor(fmt.Sprintf("%s %q %q", p.at, p.key, p.scope)) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000") }

// placeOf undoes cursor. The empty one is before all records.
func placeOf(c ks.Cursor) (p place, err error) {
	if c != "" {
		_, err = fmt.Sscanf(string(c), "%s %q %q", &p.at, &p.key, &p.scope)
	}
	return p, err
}

// Scan yields what there was when it began.
func (h *handle) Scan(ctx context.Context, q query) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		err := h.trip(opOf(ctx))
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		var list []record
		if err == nil {
			list, err = h.list(q)
		}
		for _, r := range list {
			if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(record{}, err)
		}
	}
}

// list is what a query asks for.
func (h *handle) list(q query) (list []record, err error) {
	after, err := placeOf(q.After)
	if err != nil || q.Lane == 0 || q.Limit < 0 || !q.Due.IsZero() && q.Lane != laneOpen {
		return nil, errInvalid
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	places := map[ks.Cursor]place{}
	for at, r := range h.now.rows {
		when, asked := asksFor(q, r)
		p := place{stamp(when), at.word, at.scope}
		if asked && p.compare(after) > 0 {
			r = shown(r, false)
			r.Cursor = p.cursor()
			places[r.Cursor] = p
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b record) int { return places[a.Cursor].compare(places[b.Cursor]) })
	if q.Limit > 0 {
		list = list[:min(q.Limit, len(list))]
	}
	return list, nil
}

// asksFor tells whether a query asks for a record, and by which time it orders it.
func asksFor(q query, r record) (when time.Time, asked bool) {
	if r.Lane != q.Lane || !q.AllScopes && r.Scope != q.Scope {
		return when, false
	}
	if !q.Due.IsZero() {
		return r.Due, !r.Due.IsZero() && !r.Due.After(q.Due)
	}
	return r.Order, q.Until.IsZero() || !r.Order.After(q.Until)
}
