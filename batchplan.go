package idem

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// itemPlan is what an answer means for one item of its call.
type itemPlan struct {
	item   KeyedItem
	now    held
	before bool // an earlier call, or an earlier attempt of this one, may have applied it
	said   bool // the answer has a result for it
	denied bool // that is NotDone, which proves nothing after what was before
	lost   bool // the answer isn't to be kept
	res    ItemResult
	next   itemStep
}

type itemStep uint8

const (
	itemOpen   itemStep = iota // the answer doesn't settle it
	itemSettle                 // Done, or NotDone for good
	itemAgain                  // didn't happen, and goes into another call
	itemGone                   // settled meanwhile by a person
)

// decode reads an answer through the codec. over is false if the same call is to be
// sent again.
func (b *batchCall) decode(v verdict) (o outcome, over bool) {
	results, err := b.readAnswer()
	if err != nil {
		results = nil
	}
	plans, storeErr := b.plan(v, results)
	if storeErr != nil {
		return b.storeBroke(storeErr), true
	}
	if err != nil || movesNothing(plans) {
		return b.settledNothing(v, plans, err)
	}
	return b.apply(plans), true
}

func (b *batchCall) readAnswer() ([]ItemResult, error) {
	if b.verdict.row == rowAlreadyDone {
		return nil, fmt.Errorf("%w: the answer only says that it was done before", ErrInDoubt)
	}
	switch {
	case b.answer.lost != nil:
		return nil, b.answer.lost
	case b.answer.tooLarge:
		return nil, fmt.Errorf("%w: the answer to the call has %d bytes", ErrBodyTooLarge, len(b.answer.body))
	}
	return b.codec.Decode(b.answer.response(), slices.Clone(b.items))
}

// plan weighs each item's result against what was sent before.
func (b *batchCall) plan(v verdict, results []ItemResult) ([]itemPlan, error) {
	byID := b.index(results)
	plans := make([]itemPlan, len(b.items))
	b.waitFor = 0
	for i, it := range b.items {
		now, err := b.entries.byKey(b.ctx, it.Key)
		if errors.Is(err, ErrNotFound) {
			plans[i] = itemPlan{item: it, next: itemGone}
			continue
		}
		if err != nil {
			return nil, err
		}
		p := itemPlan{item: it, now: now, before: now.head.ItemBefore || b.before.attempt}
		p.res, p.said = byID[it.ID]
		p.res.ID, p.res.Key = it.ID, it.Key
		b.planItem(&p, v)
		plans[i] = p
	}
	return plans, nil
}

// planItem decides what becomes of an item.
func (b *batchCall) planItem(p *itemPlan, v verdict) {
	switch {
	case p.now.head.State != StatePending:
		p.next = itemGone
	case p.res.Fate == FateDone:
		p.next = itemSettle
	case p.res.Fate == FateNotDone && p.before && !b.proves(p, v):
		p.res.Fate, p.denied = FateUnknown, true
	case p.res.Fate == FateNotDone:
		p.next = itemSettle
		if p.res.Retry {
			p.next = itemAgain
		}
	}
	if p.next == itemSettle && p.res.Status == 0 && b.answer != nil {
		p.res.Status = b.answer.status
	}
	if p.open() {
		b.waitFor = max(b.waitFor, min(p.res.RetryAfter, longestHint))
	}
}

// proves tells whether a refusal of an item says that nothing before it took effect. One
// that may be tried again came at the door, without a word on what was before; a replay
// marker proves it only against earlier attempts of the same call.
func (b *batchCall) proves(p *itemPlan, v verdict) bool {
	if p.res.Retry {
		return false
	}
	return b.dialect.KeyFirst || v.replayed && !p.now.head.ItemBefore
}

// open tells an item that the answer leaves to be sent again, or to be found out.
func (p itemPlan) open() bool { return p.next == itemOpen || p.next == itemAgain }

// index sorts results by ID. An item with two different results has none; one that
// wasn't in the call is reported.
func (b *batchCall) index(results []ItemResult) map[string]ItemResult {
	ours := map[string]bool{}
	for _, it := range b.items {
		ours[it.ID] = true
	}
	byID := map[string]ItemResult{}
	for _, r := range results {
		before, twice := byID[r.ID]
		switch {
		case !ours[r.ID]:
			b.tracer.foreign(b.parent, b.head.Key, r.ID)
			b.foreign.add(b.head.Key, r.ID)
		case twice && (before.Fate != r.Fate || before.Status != r.Status):
			byID[r.ID] = ItemResult{Err: fmt.Errorf("%w: the answer has two results for it", ErrInDoubt)}
		case !twice:
			byID[r.ID] = r
		}
	}
	return byID
}

// foreignIDs are what the answers of a batch's calls named though no call carried it:
// a mix-up at the provider that somebody should look into. Only the first is kept.
type foreignIDs struct {
	mu    sync.Mutex
	first string
	call  Key
	n     int
}

func (f *foreignIDs) add(call Key, id string) {
	if f == nil { // Resume has the trace and the log
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == 1 {
		f.first, f.call = id, call
	}
}

func (f *foreignIDs) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == 0 {
		return nil
	}
	return fmt.Errorf("idem: answers name items that their calls didn't carry: %d, first %q in call %s", f.n, f.first, f.call)
}

// movesNothing tells an answer that moves no item.
func movesNothing(plans []itemPlan) bool {
	for _, p := range plans {
		if p.next != itemOpen {
			return false
		}
	}
	return true
}

// settledNothing counts an answer that settled nothing: the items go again, in the same
// call or, where their keys are honoured and the answer could be read, in a new one;
// after MaxAttempts in halves. over is false if the same call is to be sent again.
func (b *batchCall) settledNothing(v verdict, plans []itemPlan, decodeErr error) (o outcome, over bool) {
	b.lastErr = decodeErr
	if decodeErr == nil {
		b.lastErr = errors.New("idem: the answer settles no item")
	}
	alone := len(plans) == 1
	if alone && plans[0].undecided(v) {
		return b.stop(v), true
	}
	strikes := b.head.Strikes + 1
	if err := b.save(func(h *head) { h.Strikes = strikes }, nil); err != nil {
		return b.unsaved(b.outcome(nil), err), true
	}
	spent := strikes >= b.client.opts.Retry.maxAttempts()
	if alone {
		return b.aloneUnsettled(v, plans, decodeErr, spent)
	}
	switch {
	case decodeErr == nil && !spent && b.mayGoOn(v, plans):
		return b.apply(plans), true // under the same call key the same answer would come again
	case !spent:
		return b.sameCallAgain(v, plans), false
	}
	return b.halve(v, plans), true
}

// aloneUnsettled is settledNothing for a call of one item, which takes a refusal of the
// call for its own, and so an answer that can't be read; but not one that can be and
// leaves it open.
func (b *batchCall) aloneUnsettled(v verdict, plans []itemPlan, decodeErr error, spent bool) (o outcome, over bool) {
	switch {
	case v.fate == FateNotDone && !plans[0].said:
		return b.ownAnswer(v, plans[0]), true
	case decodeErr == nil && b.mayGoOn(v, plans):
		return b.apply(plans), true
	case !spent:
		return b.sameCallAgain(v, plans), false
	case decodeErr != nil:
		return b.ownAnswer(v, plans[0]), true
	}
	return b.apply(plans), true
}

// undecided tells an answer that says of a lone item only that nobody knows.
func (p itemPlan) undecided(v verdict) bool {
	if p.denied && !p.res.Retry {
		return true
	}
	return v.fate == FateUnknown && !p.said
}

// mayGoOn tells whether the items may go into a new call at once: their keys are
// honoured, and the answer isn't a refusal of the whole call.
func (b *batchCall) mayGoOn(v verdict, plans []itemPlan) bool {
	return b.keysHonoured() && (v.fate != FateNotDone || anySaid(plans))
}

// sameCallAgain prepares the same call for another attempt.
func (b *batchCall) sameCallAgain(v verdict, plans []itemPlan) outcome {
	if v.fate != FateNotDone || anySaid(plans) {
		b.before.attempt = true
	}
	b.asked = b.waitFor
	return outcome{}
}

func anySaid(plans []itemPlan) bool {
	return slices.ContainsFunc(plans, func(p itemPlan) bool { return p.said })
}

// ownAnswer makes the call's answer the only item's.
func (b *batchCall) ownAnswer(v verdict, p itemPlan) outcome {
	if v.fate == FateUnknown {
		return b.stop(v)
	}
	plans, err := b.plan(v, []ItemResult{b.asItem(p.item, v.fate)})
	if err != nil {
		return b.storeBroke(err)
	}
	ofThisCallAlone(plans)
	if movesNothing(plans) {
		return b.stop(v)
	}
	return b.apply(plans)
}

// asItem is the call's answer as that of one of its items.
func (b *batchCall) asItem(it KeyedItem, fate Fate) ItemResult {
	res := outcome{key: it.Key, fate: fate, answer: b.answer, final: true}.itemResult(it.ID)
	res.Err = nil // said when the item is told
	return res
}

// ofThisCallAlone takes back what the refusal of a whole call seemed to say of items
// that an earlier call had: a key-first provider looked up the call's key, which is new.
func ofThisCallAlone(plans []itemPlan) {
	for i := range plans {
		p := &plans[i]
		if p.next == itemSettle && p.res.Fate == FateNotDone && p.now.head.ItemBefore {
			p.res.Fate, p.next, p.denied = FateUnknown, itemOpen, true
		}
	}
}

// settleAll gives the table's verdict on the call to its items.
func (b *batchCall) settleAll(v verdict) outcome {
	results := make([]ItemResult, len(b.items))
	for i, it := range b.items {
		results[i] = b.asItem(it, v.fate)
	}
	plans, err := b.plan(v, results)
	if err != nil {
		return b.storeBroke(err)
	}
	ofThisCallAlone(plans)
	if movesNothing(plans) {
		return b.stop(v)
	}
	return b.apply(plans)
}

// halve splits a call that is too large or doesn't get a readable answer. Items that
// may have been applied go on only where the provider honours their keys.
func (b *batchCall) halve(v verdict, plans []itemPlan) outcome {
	for i := range plans {
		if p := &plans[i]; p.next == itemOpen && v.fate == FateNotDone && !p.before && !p.said {
			p.next = itemAgain
		}
	}
	half := len(plans) / 2
	return b.applyTo(plans, plans[:half], plans[half:])
}

// tooLarge halves a call that the provider refused for its length.
func (b *batchCall) tooLarge(v verdict) outcome {
	plans, err := b.plan(v, nil)
	if err != nil {
		return b.storeBroke(err)
	}
	return b.halve(v, plans)
}
