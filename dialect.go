package idem

import "time"

// Dialect is how one provider takes keys and answers about them. It is plain
// data: a struct literal, or JSON. The zero Dialect sends the header
// Idempotency-Key with a raw UUIDv7, assumes that the key is remembered for 24
// hours, and reads every answer conservatively. Package dialect has presets.
type Dialect struct {
	Name      string    // pinned in entries; at most 64 bytes
	Placement Placement // where the key goes; default PlaceHeader
	Field     string    // header, query parameter, form field or JSON path (dotted, "a.b.c"); "" with the header placements is Idempotency-Key

	// NewKey mints a key; nil is [NewKey], a UUIDv7. MinKey and MaxKey are
	// limits in bytes, quotes not counted; zero is 1 and 255.
	NewKey         func() Key
	MinKey, MaxKey int

	// Methods honour the key; nil is POST and PATCH. Paths are [path.Match]
	// patterns of which one must match the URL's path, a trailing "/**" matches
	// everything below; nil is every path. Outside them a request is unkeyed.
	Methods, Paths []string

	// Routes are complete dialects of their own that are tried first, in order,
	// each by its Paths and Methods. A route has no routes.
	Routes []Dialect

	Window        time.Duration // how long the provider remembers a key, from the first send; zero is 24 h; see Forever
	Margin        time.Duration // nothing is sent in the last Margin of the window; zero is the smaller of 5 min and a tenth of the window
	InFlightMax   time.Duration // how long in-flight answers are believed, over restarts; zero is 15 min
	InFlightDelay time.Duration // shortest wait after an in-flight answer; zero is what the backoff says

	// KeyFirst says that the provider looks the key up before it judges the
	// request, and says so while the first request runs, so that a refusal
	// proves that no earlier attempt took effect (Stripe, IETF draft).
	KeyFirst bool

	// The matchers read an answer before the common table does.
	InFlight    []Match // the first request with this key still runs: wait
	Mismatch    []Match // the key belongs to another payload
	AlreadyDone []Match // an earlier attempt succeeded
	NotDone     []Match // refused for good, whatever the status says
	Replay      Match   // marks a stored answer; zero is "Idempotent-Replayed: true"

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
// nothing.
type Match struct {
	Method string // of the request
	Status int
	Header string // a header that is present
	Path   string // a path into the JSON body, dotted, "errors.0.code"; must exist
	Value  string // what stands at Header or Path; "" is anything
}

// Resource locates what an AlreadyDone answer speaks of. Exactly one of Header
// and Path is set, or neither where nothing can be fetched.
type Resource struct {
	Header string // a header with the URL
	Path   string // a path into the JSON body with a URL or an id
	URL    string // where an id is fetched: "/payments/{id}"; "" if Path gives a URL
}

// Accepted is what 202 means.
type Accepted uint8

// The meanings of 202.
const (
	AcceptedFinal  Accepted = iota // the provider has taken the request on: Done
	AcceptedResend                 // still running: send again under the same key for the result
	AcceptedPoll                   // a job: poll its Location until it ends
)

// Forever is a Window that never closes.
const Forever time.Duration = 1<<63 - 1
