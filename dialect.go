package idem

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/idem-go/idem/internal/wire"
)

// Dialect is how one provider takes keys and answers about them. It is plain
// data: a struct literal, or JSON. The zero Dialect sends the header
// Idempotency-Key with a raw UUIDv7, assumes that the key is remembered for 24
// hours, and reads every answer conservatively. Package dialect has presets.
type Dialect struct {
	Name      string    // pinned in entries; at most 64 bytes
	Placement Placement // where the key goes; default PlaceHeader
	Field     string    // header, query parameter, form field or JSON path (dotted, "a.b.c"); "" with the header placements is Idempotency-Key

	// KeyForm is the form of minted keys; "" is KeyUUIDv7. NewKey, if set, mints
	// instead, and is the one field that JSON doesn't carry. MinKey and MaxKey
	// are limits in bytes, quotes not counted; zero is 1 and 255.
	KeyForm        KeyForm
	NewKey         func() Key
	MinKey, MaxKey int

	// FirstSent is a header that carries the time of the first send, the same
	// on every attempt, as an HTTP date (Azure); "" is none.
	FirstSent string

	// Methods honour the key; nil is POST and PATCH. Paths are [path.Match]
	// patterns of which one must match the URL's path, a trailing "/**" matches
	// everything below; nil is every path. Outside them a request is unkeyed.
	// Methods are written in upper case; a "%2F" in a path separates nothing.
	Methods, Paths []string

	// Routes are complete dialects of their own that are tried first, in order,
	// each by its Paths and Methods, of which it sets at least one. A route
	// inherits nothing but an empty Name, and has no routes.
	Routes []Dialect

	Window        time.Duration // how long the provider remembers a key, from the first send; zero is 24 h; see Forever
	Margin        time.Duration // nothing is sent in the last Margin of the window; zero is the smaller of 5 min and a tenth of the window
	InFlightMax   time.Duration // how long in-flight answers are believed, over restarts; zero is 15 min
	InFlightDelay time.Duration // shortest wait after an in-flight answer; zero is what the backoff says

	// KeyFirst says that the provider looks the key up before it judges the
	// request, and says so while the first request runs, so that a refusal
	// proves that no earlier attempt took effect (Stripe, IETF draft).
	KeyFirst bool

	// The matchers read an answer before the common table does. Answers to polls are
	// read by those with the method GET, and successful ones also by InFlight and NotDone
	// without a method.
	InFlight    []Match // the first request with this key still runs: wait
	Mismatch    []Match // the key belongs to another payload
	AlreadyDone []Match // an earlier attempt succeeded
	NotDone     []Match // refused for good, whatever the status says
	Throttled   []Match // refused before processing for a limit: as a 429, whatever the status says
	AtDoor      []Match // refused before processing, by the provider or a layer in front of it: as a 401
	Replay      Match   // marks a stored answer; zero is "Idempotent-Replayed: true"

	// Success, if any is set, is what an answer of the provider's own looks like when
	// it succeeded: a 2xx that none recognises comes from a layer in front, a login or
	// challenge page, and is refused at the door.
	Success []Match

	// SettlesWithin says for how long after it was received a request can still take
	// effect. A refusal that long after the last attempt in doubt proves that none did.
	// Zero: nobody knows, and only KeyFirst or a replay marker proves it.
	SettlesWithin time.Duration

	// SignedWith are headers that a signature made above the client covers, such as
	// "X-Timestamp" beside "X-Signature": a resend takes them from the request that
	// brings the new signature. Well-known ones are recognised anyway.
	SignedWith []string

	// Resource is where an AlreadyDone answer tells what to fetch.
	Resource Resource

	Accepted Accepted // what a 202 means; default AcceptedFinal

	// ShouldRetry is the header whose value "true" or "false" is the strongest
	// hint. SilentStop says that its absence in an answer of the dialect's own
	// Shape means "false" (Adyen).
	ShouldRetry string
	SilentStop  bool
	Shape       Match

	// Headers are request headers that are part of the payload, beside
	// Content-Type: the same name with another value is a mismatch.
	Headers []string

	// Source and Checked say where the facts were read and when (YYYY-MM-DD).
	// Unverified names the fields that no source vouches for.
	Source, Checked string
	Unverified      []string
}

// KeyForm is a form of minted keys.
type KeyForm string

// The key forms. Both are 36 bytes in lower case, which nearly every provider
// takes; some check the version of the UUID.
const (
	KeyUUIDv7 KeyForm = "uuidv7" // ordered by time; the default
	KeyUUIDv4 KeyForm = "uuidv4" // random
)

// Placement is where a key stands in a request.
type Placement uint8

// The placements. PlaceHeader is zero.
const (
	PlaceHeader       Placement = iota // a header with the raw key
	PlaceQuotedHeader                  // a header with the key as a structured-field string, in double quotes (IETF draft, RFC 9651 §3.3.3)
	PlaceJSON                          // a string member of the JSON body
	PlaceQuery                         // a query parameter
	PlaceForm                          // a field of a form-encoded body
	PlaceNone                          // the provider takes no key
)

// Match recognises an answer. All that is set must hold; a zero Match matches
// nothing. At least one of Status, Header and Path is set, and with a Value
// exactly one of Header and Path.
type Match struct {
	Method string `json:"method,omitzero"` // of the request
	Status int    `json:"status,omitzero"`
	Header string `json:"header,omitzero"` // a header that is present
	Path   string `json:"path,omitzero"`   // a path into the JSON body, dotted, "errors.0.code"; must exist and not be null

	// Value is what stands at Header (in any case) or at Path (a string, a
	// number as it is written, "true" or "false"); "" is anything.
	Value string `json:"value,omitzero"`
}

// Resource locates what an AlreadyDone answer speaks of. Exactly one of Header
// and Path is set, or neither where nothing can be fetched.
type Resource struct {
	Header string `json:"header,omitzero"` // a header with the URL
	Path   string `json:"path,omitzero"`   // a path into the JSON body with a URL or an id
	URL    string `json:"url,omitzero"`    // where an id is fetched: "/payments/{id}"; "" if Path gives a URL
}

// String returns the placement's name: "header", "quoted-header", "json",
// "query", "form" or "none".
func (p Placement) String() string { return nameAt(placementNames, int(p)) }

var placementNames = []string{"header", "quoted-header", "json", "query", "form", "none"}

// Accepted is what 202 means.
type Accepted uint8

// The meanings of 202.
const (
	AcceptedFinal  Accepted = iota // the provider has taken the request on: Done
	AcceptedResend                 // still running: send again under the same key for the result
	AcceptedPoll                   // a job: poll its Location until it ends
)

// String returns the meaning's name: "final", "resend" or "poll".
func (a Accepted) String() string { return nameAt(acceptedNames, int(a)) }

var acceptedNames = []string{"final", "resend", "poll"}

// nameAt returns the name of an enumerated value, or its number if it has none.
func nameAt(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return strconv.Itoa(i)
}

// Forever is a Window that never closes.
const Forever time.Duration = 1<<63 - 1

// The defaults of a Dialect. They are read through getters and never written
// back, so that a zero field stays visible as one.
const (
	defaultField       = "Idempotency-Key"
	defaultWindow      = 24 * time.Hour
	defaultInFlightMax = 15 * time.Minute
	defaultMaxKey      = 255
	maxMargin          = 5 * time.Minute
)

var (
	defaultMethods = []string{http.MethodPost, http.MethodPatch}
	defaultReplay  = Match{Header: "Idempotent-Replayed", Value: "true"}
)

func (d Dialect) inHeader() bool {
	return d.Placement == PlaceHeader || d.Placement == PlaceQuotedHeader
}

func (d Dialect) field() string {
	if d.Field == "" && d.inHeader() {
		return defaultField
	}
	return d.Field
}

func (d Dialect) methods() []string {
	if d.Methods == nil {
		return defaultMethods
	}
	return d.Methods
}

func (d Dialect) window() time.Duration { return cmp.Or(d.Window, defaultWindow) }

// margin is capped, so that a window of days doesn't lose hours to it.
func (d Dialect) margin() time.Duration {
	return cmp.Or(d.Margin, min(maxMargin, d.window()/10))
}

func (d Dialect) inFlightMax() time.Duration { return cmp.Or(d.InFlightMax, defaultInFlightMax) }

func (d Dialect) minKey() int { return cmp.Or(d.MinKey, 1) }

func (d Dialect) maxKey() int { return cmp.Or(d.MaxKey, defaultMaxKey) }

func (d Dialect) replay() Match { return cmp.Or(d.Replay, defaultReplay) }

// mint makes a key that nobody else has.
func (d Dialect) mint() Key {
	switch {
	case d.NewKey != nil:
		return d.NewKey()
	case d.KeyForm == KeyUUIDv4:
		return Key(uuid.New().String())
	}
	return Key(uuid.Must(uuid.NewV7()).String())
}

// route picks the dialect that holds for a request and tells whether the
// provider honours a key on it. urlPath is the escaped path of the URL.
func (d Dialect) route(method, urlPath string) (dialect Dialect, keyed bool) {
	for _, r := range d.Routes {
		if r.covers(method, urlPath) {
			r.Name = cmp.Or(r.Name, d.Name)
			return r, r.Placement != PlaceNone
		}
	}
	keyed = d.Placement != PlaceNone && d.covers(method, urlPath)
	d.Routes = nil
	return d, keyed
}

// covers tells whether a request is within the dialect's own methods and paths.
func (d Dialect) covers(method, urlPath string) bool {
	if !slices.Contains(d.methods(), method) {
		return false
	}
	return d.Paths == nil || slices.ContainsFunc(d.Paths, func(pattern string) bool {
		return wire.MatchPath(pattern, cmp.Or(urlPath, "/"))
	})
}

// leastMargin is the smallest margin among d and its routes.
func (d Dialect) leastMargin() time.Duration {
	least := d.margin()
	for _, r := range d.Routes {
		least = min(least, r.margin())
	}
	return least
}

// longestWindow is the longest finite window among d and its routes.
func (d Dialect) longestWindow() time.Duration {
	longest := time.Duration(0)
	for _, r := range append([]Dialect{d}, d.Routes...) {
		if w := r.window(); w != Forever {
			longest = max(longest, w)
		}
	}
	return longest
}
