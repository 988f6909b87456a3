package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// errAudit means that the provider's ledger and the file disagree.
var errAudit = errors.New("the audit failed")

// audit is the file beside the provider's ledger.
type audit struct {
	Rows    int // payments in the file
	Sent    int // of them, those of which a request arrived
	Once    int
	Twice   int // or more often
	Lost    int
	Changed int // made with another amount or currency than the file's
	Foreign int // made, and not in the file
	Keys    int
	Arrived int
	Replays int
	Due     map[string]int64 // cents by currency, by the file
	Made    map[string]int64 // and by the ledger
}

// check reads a ledger against the file. An error says that the ledger can't be
// believed: its two counts, kept apart, differ.
func check(rows []payment, l ledger) (audit, error) {
	a := audit{
		Rows: len(rows), Keys: l.Keys, Arrived: l.Arrived, Replays: l.Replays,
		Due: map[string]int64{}, Made: map[string]int64{},
	}
	byID := map[string][]made{}
	for _, m := range l.Made {
		byID[m.ID] = append(byID[m.ID], m)
		a.Made[m.Currency] += m.Cents
	}
	for _, row := range rows {
		a.Due[row.Currency] += row.Cents
		a.count(row, byID[row.ID], l)
		if n := len(byID[row.ID]); n != l.Effects[row.ID] {
			return a, fmt.Errorf("the provider made payment %s %d times and counted %d", row.ID, n, l.Effects[row.ID])
		}
		delete(byID, row.ID)
	}
	for _, list := range byID {
		a.Foreign += len(list)
	}
	return a, nil
}

func (a *audit) count(row payment, list []made, l ledger) {
	if _, arrived := l.Effects[row.ID]; arrived {
		a.Sent++
	}
	switch len(list) {
	case 0:
		a.Lost++
	case 1:
		a.Once++
	default:
		a.Twice++
	}
	for _, m := range list {
		if m.Cents != row.Cents || m.Currency != row.Currency {
			a.Changed++
		}
	}
}

// clean reports whether everything happened once and as written.
func (a audit) clean() bool {
	return a.Twice == 0 && a.Lost == 0 && a.wrong() == 0 && maps.Equal(a.Due, a.Made)
}

// wrong counts what was made otherwise than the file says.
func (a audit) wrong() int { return a.Changed + a.Foreign }

// currencies are those of either side, sorted.
func (a audit) currencies() []string {
	all := maps.Clone(a.Due)
	maps.Copy(all, a.Made)
	return slices.Sorted(maps.Keys(all))
}
