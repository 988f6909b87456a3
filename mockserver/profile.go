package mockserver

import (
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// Profile is how an API takes keys and answers about them. It is plain data: a
// struct literal, or JSON (durations are nanoseconds). The zero Profile as a
// whole is [Standard]; in any other, each zero field means what it says here.
type Profile struct {
	Name string // a label; see ProfileByName

	// Mute accepts keys and ignores them: every request is executed.
	Mute bool

	Place  Place  // where the key stands; zero is PlaceHeader
	Field  string // header, query parameter, form field or dotted JSON path; "" is Idempotency-Key
	Quoted bool   // the key is a structured-field string, in double quotes; one without is a bad key

	// Methods honour the key; nil is POST and PATCH. With others the key is
	// ignored and the request executed.
	Methods []string

	// Keys shorter than MinKey or longer than MaxKey bytes, quotes not counted,
	// or not matched as a whole by the regular expression KeyPattern, are bad,
	// and so are two keys in one request. Zero and "" are no limit.
	MinKey, MaxKey int
	KeyPattern     string

	// ScopeRoute makes method and path part of a key's identity: the same key
	// elsewhere is another key. ScopeHeader does so for a request header's
	// value: after another Authorization, say, nothing is known of the key.
	ScopeRoute  bool
	ScopeHeader string

	Missing Reply // no key; zero executes the request without one
	BadKey  Reply // a bad key; zero is an empty 400

	// Compare is what must be equal under one key; zero is CompareAll. Mismatch
	// answers a difference; zero executes the request anew.
	Compare  Compare
	Mismatch Reply

	// InFlight answers while the first request with the key runs; zero makes
	// the second wait for the first and share its answer. LockFor is how long a
	// running request holds its key: past it, a second one is executed beside
	// it. Zero is for as long as it runs.
	InFlight Reply
	LockFor  time.Duration

	// What is left of an executed request: zero is KeepAnswer for 2xx, 3xx and
	// 4xx, and KeepNothing for 5xx.
	Keep2xx, Keep4xx, Keep5xx Keep

	// Done answers instead of the kept answer, if that is a 2xx ("already
	// done", with a link); without a Body of its own it has the kept one. Zero
	// replays the kept answer. ReplayHeader and ReplayValue are then added to
	// either; "" adds none.
	Done                      Reply
	ReplayHeader, ReplayValue string

	// Window is how long a key is remembered, from the moment it was first
	// seen; zero is 24 h, Forever never ends. Late answers a key that is older;
	// zero has forgotten it and executes the request anew. FirstSent names the
	// request header, an HTTP date, from which the window counts instead, for
	// unknown keys too.
	Window    time.Duration
	Late      Reply
	FirstSent string

	RateLimit Reply // answers FaultRateLimit; zero is a plain 429

	EchoKey string      // response header in which the key comes back; "" is none
	Header  http.Header // on every answer of the API that has no such header

	// ShouldRetry is the response header that says on every error of the API,
	// "true" or "false", whether the same request may end otherwise; "" is none.
	ShouldRetry string
}

// Forever is a window that never closes.
const Forever time.Duration = 1<<63 - 1

// Reply is an answer that a profile gives by itself. A zero Status means that
// there is none. In Body and in header values {key}, {path} and {body} stand for
// the request's own, and {id} for the resource that the kept answer speaks of:
// its JSON member "resource", else "id".
type Reply struct {
	Status int
	Header http.Header
	Body   string
}

// Place is where a key stands in a request.
type Place string

// The places of a key.
const (
	PlaceHeader Place = ""      // a request header
	PlaceQuery  Place = "query" // a query parameter
	PlaceJSON   Place = "json"  // a string member of the JSON body
	PlaceForm   Place = "form"  // a field of a form-encoded body
)

// Compare is what a profile compares between requests with one key.
type Compare string

// What is compared.
const (
	CompareAll     Compare = ""        // body, method and path with query
	CompareBody    Compare = "body"    // body alone
	CompareRoute   Compare = "route"   // method and path alone
	CompareNothing Compare = "nothing" // mismatches go unnoticed: the first answer is replayed
)

// Keep is what remains of an executed request under its key.
type Keep string

// What remains.
const (
	KeepDefault Keep = ""        // as the profile, or the field, says
	KeepAnswer  Keep = "answer"  // the answer, replayed until the window closes
	KeepNothing Keep = "nothing" // the key is free: a repeat is executed
	KeepLock    Keep = "lock"    // the key stays in flight until the window closes
)

// isZero reports whether nothing at all was set.
func (p Profile) isZero() bool { return reflect.ValueOf(p).IsZero() }

// field is the name at the key's place.
func (p *Profile) field() string {
	if p.Field == "" {
		return "Idempotency-Key"
	}
	return p.Field
}

// honours reports whether the key counts for a method.
func (p *Profile) honours(method string) bool {
	if p.Mute {
		return false
	}
	if p.Methods == nil {
		return method == http.MethodPost || method == http.MethodPatch
	}
	for _, m := range p.Methods {
		if strings.EqualFold(m, method) {
			return true
		}
	}
	return false
}

// window is how long keys are remembered.
func (p *Profile) window() time.Duration {
	if p.Window == 0 {
		return 24 * time.Hour
	}
	return p.Window
}

// keep is what remains of an answer with this status.
func (p *Profile) keep(status int) Keep {
	switch {
	case status >= 500:
		return first(p.Keep5xx, KeepNothing)
	case status >= 400:
		return first(p.Keep4xx, KeepAnswer)
	}
	return first(p.Keep2xx, KeepAnswer)
}

// pattern compiles KeyPattern for whole keys; nil is no pattern.
func (p *Profile) pattern() *regexp.Regexp {
	if p.KeyPattern == "" {
		return nil
	}
	return regexp.MustCompile(`\A(?:` + p.KeyPattern + `)\z`)
}

// answer fills in a reply, or its default.
func (r Reply) answer(def Reply, fill *strings.Replacer) *answer {
	if r.Status == 0 {
		r = def
	}
	h := http.Header{}
	for name, values := range r.Header {
		for _, v := range values {
			h.Add(name, fill.Replace(v))
		}
	}
	return newAnswer(r.Status, h, []byte(fill.Replace(r.Body)))
}

// first is the first of its arguments that says something.
func first(keeps ...Keep) Keep {
	for _, k := range keeps {
		if k != KeepDefault {
			return k
		}
	}
	return KeepDefault
}
