package mockserver

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Batch makes the server a batch endpoint, on any path: its handler reads the
// items of a call, lets each of them happen or not, and answers in the format's
// way. Each item that happens is an effect of its own, under its own key and
// value; the call as a whole is none. [Server.Items] lists the items that came.
//
// An item's key is honoured for ever, whatever call it comes in; a call's key as
// the server's [Profile] says, so that a repeated call runs nothing.
type Batch struct {
	Format BatchFormat // zero is BatchJSON

	// What becomes of an item: what Script says of its value, try by try; after
	// that, with probability Rate, one of Outcomes; else it is done. Rate zero is
	// 0.5. What is drawn depends on Seed, the value and the try alone, however
	// calls are made up and ordered.
	Script   map[string][]ItemOutcome
	Outcomes []ItemOutcome
	Rate     float64
	Seed     uint64

	IgnoreKeys    bool                   // items' keys are accepted and ignored
	Value         func(BatchItem) string // an item's business value; nil is its ID
	StopAtFailure bool                   // items behind the first failed one don't run; Formance does so unless asked to continue
	Shuffle       bool                   // results come in any order, drawn from Seed
	Foreign       int                    // how many results of items that nobody sent are in every answer
	Status        int                    // of an answer that tells of failed items; zero is 200; Formance's is always 400
	RetryAfter    time.Duration          // what throttled items are told, in whole seconds; zero is nothing
	MaxItems      int                    // a longer call is refused as a whole; zero is the format's: 10 for SQS, 20 for Graph, else none
}

// BatchFormat is how calls and answers are written.
type BatchFormat string

// The formats. An item of the first two is an object with id and idempotency_key.
const (
	BatchJSON     BatchFormat = "json"     // an array, or an object with the array "items" whose answer has the array "results"; each result has id, status, error, retry_after
	BatchNDJSON   BatchFormat = "ndjson"   // the same, an object a line
	BatchSQS      BatchFormat = "sqs"      // SendMessageBatch; the key is MessageDeduplicationId
	BatchGraph    BatchFormat = "graph"    // $batch of Microsoft Graph; the key is body.transactionId
	BatchFormance BatchFormat = "formance" // _bulk of the Formance ledger; the ID is data.id, else data.reference, else the key, which is ik
)

// ItemOutcome is what becomes of an item.
type ItemOutcome string

// The outcomes. Where a format can't say one, the nearest takes its place: SQS
// leaves out what breaks; Formance, whose answers have a place for every item,
// breaks what is left out or throttled, and says nothing twice.
const (
	ItemDone       ItemOutcome = ""            // it happens
	ItemRefuse     ItemOutcome = "refuse"      // it doesn't, for good; an item whose key is known is done all the same
	ItemThrottle   ItemOutcome = "throttle"    // it doesn't, and may come again
	ItemBreak      ItemOutcome = "break"       // it doesn't, but the answer only says that something broke
	ItemBreakAfter ItemOutcome = "break-after" // it happens, and the answer says the same
	ItemSkip       ItemOutcome = "skip"        // it doesn't, and is missing in the answer
	ItemLose       ItemOutcome = "lose"        // it happens, and is missing in the answer
	ItemTwice      ItemOutcome = "twice"       // it happens, and is in the answer twice
	ItemContradict ItemOutcome = "contradict"  // it happens, and is in the answer as done and as refused
	ItemCancel     ItemOutcome = "cancel"      // it doesn't, for another one failed; see StopAtFailure
)

var itemOutcomes = []ItemOutcome{
	ItemDone, ItemRefuse, ItemThrottle, ItemBreak, ItemBreakAfter,
	ItemSkip, ItemLose, ItemTwice, ItemContradict, ItemCancel,
}

// happens reports whether the outcome has an effect.
func (o ItemOutcome) happens() bool {
	return slices.Contains([]ItemOutcome{ItemDone, ItemBreakAfter, ItemLose, ItemTwice, ItemContradict}, o)
}

// failed reports whether the answer shows a failure of the item itself.
func (o ItemOutcome) failed() bool {
	return slices.Contains([]ItemOutcome{ItemRefuse, ItemThrottle, ItemBreak, ItemBreakAfter}, o)
}

// BatchItem is one item that arrived in a call, and what became of it.
type BatchItem struct {
	ID, Key string // as on the wire; "" is none
	Value   string
	Body    []byte // its part of the call
	Try     int    // how often the value had arrived, this time included
	Outcome ItemOutcome
	Effect  bool // it took effect, now
}

// batch is the handler.
type batch struct {
	Batch
	server *Server
	format batchFormat

	mu    sync.Mutex // held over a call
	items []BatchItem
	tries map[string]int       // by value
	keys  map[string][]string  // distinct, by value
	known map[string]BatchItem // done, by key
	calls uint64
}

func newBatch(s *Server, cfg Batch) *batch {
	if cfg.Format == "" {
		cfg.Format = BatchJSON
	}
	format, ok := batchFormats[cfg.Format]
	if !ok {
		panic(fmt.Sprintf("mockserver: unknown batch format %q", cfg.Format))
	}
	cfg.mustBeKnown()
	if cfg.Rate == 0 {
		cfg.Rate = 0.5
	}
	if cfg.MaxItems == 0 {
		cfg.MaxItems = format.most
	}
	return &batch{Batch: cfg, server: s, format: format, tries: map[string]int{}, keys: map[string][]string{}, known: map[string]BatchItem{}}
}

func (b *Batch) mustBeKnown() {
	all := slices.Clone(b.Outcomes)
	for _, script := range b.Script {
		all = append(all, script...)
	}
	for _, o := range all {
		if !slices.Contains(itemOutcomes, o) {
			panic(fmt.Sprintf("mockserver: unknown item outcome %q", o))
		}
	}
}

// ServeHTTP answers a call.
func (b *batch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // in memory: it can't fail
	w.Header().Set(EffectHeader, "no")
	w.Header().Set("Content-Type", b.format.media)
	call, err := b.format.parse(r, body)
	if err == nil && b.MaxItems > 0 && len(call.items) > b.MaxItems {
		err = fmt.Errorf("%d items, at most %d", len(call.items), b.MaxItems)
		call.refuse = http.StatusRequestEntityTooLarge
	}
	if err != nil {
		refuseCall(w, b.format, call, err)
		return
	}
	b.mu.Lock()
	results := b.run(&call)
	b.mu.Unlock()
	status, answer := b.format.render(b, call, results)
	w.WriteHeader(status)
	w.Write(answer)
}

// batchCall is a call that was read.
type batchCall struct {
	items   []BatchItem
	wrapped bool // the array stood in an object
	atomic  bool
	stop    bool
	refuse  int // the status that refuses the call; zero is 400
}

// itemResult is one result of an answer.
type itemResult struct {
	BatchItem
	shown ItemOutcome // ItemDone, ItemRefuse, ItemThrottle, ItemBreak or ItemCancel
}

// run lets the items of a call happen, and says what the answer shows.
func (b *batch) run(call *batchCall) []itemResult {
	b.calls++
	call.stop = call.stop || b.StopAtFailure
	b.plan(call)
	var results []itemResult
	for i := range call.items {
		it := &call.items[i]
		shown := it.Outcome
		if !call.takenBack() {
			shown = b.happen(it)
		}
		answered := *it
		if first, ok := b.find(it); ok {
			answered.Body = first.Body
		}
		results = append(results, show(answered, shown)...)
	}
	b.record(call.items)
	return b.disturb(results)
}

// record enters items in the ledger.
func (b *batch) record(items []BatchItem) {
	b.items = append(b.items, items...)
	for _, it := range items {
		if !slices.Contains(b.keys[it.Value], it.Key) {
			b.keys[it.Value] = append(b.keys[it.Value], it.Key)
		}
	}
}

// plan decides on the outcome of each item.
func (b *batch) plan(call *batchCall) {
	failed := false
	for i := range call.items {
		it := &call.items[i]
		it.Value = it.ID
		if b.Value != nil {
			it.Value = b.Value(*it)
		}
		b.tries[it.Value]++
		it.Try = b.tries[it.Value]
		it.Outcome = b.format.nearest(b.draw(it))
		if _, known := b.find(it); known && it.Outcome == ItemRefuse {
			it.Outcome = ItemDone // the key is looked up first
		}
		if failed && call.stop {
			it.Outcome = ItemCancel
		}
		failed = failed || it.Outcome.failed()
	}
}

// draw picks the outcome of an item's try.
func (b *batch) draw(it *BatchItem) ItemOutcome {
	if script := b.Script[it.Value]; it.Try <= len(script) {
		return script[it.Try-1]
	}
	h := fnv.New64a()
	io.WriteString(h, it.Value)
	r := rand.New(rand.NewPCG(b.Seed^h.Sum64(), uint64(it.Try)))
	if len(b.Outcomes) == 0 || r.Float64() >= b.Rate {
		return ItemDone
	}
	return b.Outcomes[r.IntN(len(b.Outcomes))]
}

// find returns what was done under an item's key.
func (b *batch) find(it *BatchItem) (BatchItem, bool) {
	if b.IgnoreKeys || it.Key == "" {
		return BatchItem{}, false
	}
	first, ok := b.known[it.Key]
	return first, ok
}

// takenBack reports whether the call is atomic and something in it failed.
func (c *batchCall) takenBack() bool {
	return c.atomic && slices.ContainsFunc(c.items, func(it BatchItem) bool { return it.Outcome.failed() })
}

// happen lets an item happen if that is its outcome, once a key, and returns what
// the answer shows.
func (b *batch) happen(it *BatchItem) ItemOutcome {
	first, known := b.find(it)
	switch {
	case !it.Outcome.happens():
		return it.Outcome
	case known && !b.format.same(first.Body, it.Body):
		it.Outcome = ItemRefuse
		return ItemRefuse
	case known:
		return it.Outcome
	case b.IgnoreKeys || it.Key == "":
		it.Effect = b.server.Apply("", it.Value)
	default:
		it.Effect = b.server.Apply(it.Key, it.Value)
		b.known[it.Key] = *it
	}
	return it.Outcome
}

// show is an item's part of the answer.
func show(it BatchItem, o ItemOutcome) []itemResult {
	switch o {
	case ItemSkip, ItemLose:
		return nil
	case ItemBreakAfter:
		return []itemResult{{it, ItemBreak}}
	case ItemTwice:
		return []itemResult{{it, ItemDone}, {it, ItemDone}}
	case ItemContradict:
		return []itemResult{{it, ItemDone}, {it, ItemRefuse}}
	}
	return []itemResult{{it, o}}
}

// disturb adds foreign results and changes the order, where results have ids.
func (b *batch) disturb(results []itemResult) []itemResult {
	if b.Format == BatchFormance {
		return results
	}
	for i := range b.Foreign {
		results = append(results, itemResult{BatchItem: BatchItem{ID: fmt.Sprintf("foreign-%d", i+1)}})
	}
	if b.Shuffle {
		r := rand.New(rand.NewPCG(b.Seed, b.calls))
		r.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	}
	return results
}

// Items are all items that arrived in calls of [Config.Batch], in the order of
// their arrival. Calls that the idempotency layer answered brought none.
func (s *Server) Items() []BatchItem {
	if s.batch == nil {
		return nil
	}
	s.batch.mu.Lock()
	defer s.batch.mu.Unlock()
	list := slices.Clone(s.batch.items)
	for i := range list {
		list[i].Body = slices.Clone(list[i].Body)
	}
	return list
}

// ItemKeys are the distinct keys under which a value arrived in calls of
// [Config.Batch], as Keys are those of requests.
func (s *Server) ItemKeys(value string) []string {
	if s.batch == nil {
		return nil
	}
	s.batch.mu.Lock()
	defer s.batch.mu.Unlock()
	return slices.Clone(s.batch.keys[value])
}
