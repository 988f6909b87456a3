package idem

import "slices"

// expecting adds the names that the journal withheld from an entry's first request,
// each of which must stand on every attempt.
func (w withheld) expecting(headers, query []string) withheld {
	w.Headers = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Headers, headers))))
	w.Query = slices.Compact(slices.Sorted(slices.Values(slices.Concat(w.Query, query))))
	return w
}
