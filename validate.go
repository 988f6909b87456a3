package idem

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/internal/secret"
	"github.com/idem-go/idem/internal/wire"
)

// maxDialectName bounds what every entry repeats, in bytes.
const maxDialectName = 64

// validate returns an *InvalidError that names the first field that makes no
// sense, so that a wrong dialect fails where the client is made and not at the
// first payment.
func (d Dialect) validate() error { return d.validateAt("Dialect") }

// validateAt is validate for a dialect that stands at the given place.
func (d Dialect) validateAt(at string) error {
	checks := []func(string) error{
		d.validateName, d.validateField, d.validateKeys, d.validateScope,
		d.validateTimes, d.validateMatches, d.validateAnswers, d.validateHeaders,
	}
	for _, check := range checks {
		if err := check(at); err != nil {
			return err
		}
	}
	for i, r := range d.Routes {
		if err := r.validateRoute(fmt.Sprintf("%s.Routes[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func (d Dialect) validateRoute(at string) error {
	if len(d.Routes) > 0 {
		return invalid(at+".Routes", nil, "a route has no routes of its own")
	}
	if d.Paths == nil && d.Methods == nil {
		return invalid(at+".Paths", nil, "a route needs Paths or Methods that tell it from the others")
	}
	return d.validateAt(at)
}

func (d Dialect) validateName(at string) error {
	if len(d.Name) > maxDialectName {
		return invalid(at+".Name", d.Name, "longer than 64 bytes")
	}
	if strings.ContainsFunc(d.Name, isControl) || !utf8.ValidString(d.Name) {
		return invalid(at+".Name", d.Name, "want printable text")
	}
	if d.Checked != "" {
		if _, err := time.Parse(time.DateOnly, d.Checked); err != nil {
			return invalid(at+".Checked", d.Checked, "want a date, YYYY-MM-DD")
		}
	}
	return nil
}

func (d Dialect) validateField(at string) error {
	field := d.field()
	switch d.Placement {
	case PlaceHeader, PlaceQuotedHeader:
		return validateHeaderField(at+".Field", field)
	case PlaceJSON:
		if !isPath(field) {
			return invalid(at+".Field", d.Field, `want a dotted path into the JSON body, "a.b.c"`)
		}
	case PlaceQuery, PlaceForm:
		if field == "" || secret.IsCredentialQuery(field) {
			return invalid(at+".Field", d.Field, "want a parameter's name that is not a credential's")
		}
	case PlaceNone:
		if field != "" {
			return invalid(at+".Field", d.Field, "a dialect without keys has no field for one")
		}
	default:
		return invalid(at+".Placement", d.Placement, "unknown placement")
	}
	if strings.ContainsFunc(field, isControl) || !utf8.ValidString(field) {
		return invalid(at+".Field", d.Field, "want printable text")
	}
	return nil
}

// validateHeaderField refuses headers that net/http writes itself, and those
// that are withheld from the journal.
func validateHeaderField(at, name string) error {
	if !wire.IsToken(name) {
		return invalid(at, name, "not a header name")
	}
	lower := strings.ToLower(name)
	if secret.IsCredentialHeader(name) {
		return invalid(at, name, "this header carries a credential")
	}
	if framingHeaders[lower] {
		return invalid(at, name, "this header belongs to HTTP itself")
	}
	return nil
}

var framingHeaders = map[string]bool{
	"connection": true, "content-encoding": true, "content-length": true,
	"content-type": true, "expect": true, "host": true, "te": true,
	"trailer": true, "transfer-encoding": true, "upgrade": true,
}

func (d Dialect) validateKeys(at string) error {
	if d.KeyForm != "" && d.KeyForm != KeyUUIDv7 && d.KeyForm != KeyUUIDv4 {
		return invalid(at+".KeyForm", string(d.KeyForm), "unknown key form")
	}
	if d.MinKey < 0 {
		return invalid(at+".MinKey", d.MinKey, "negative")
	}
	if d.MaxKey < 0 {
		return invalid(at+".MaxKey", d.MaxKey, "negative")
	}
	if d.minKey() > d.maxKey() {
		return invalid(at+".MinKey", d.MinKey, fmt.Sprintf("more than MaxKey, %d", d.maxKey()))
	}
	if d.Placement == PlaceNone {
		return nil
	}
	var bad *InvalidError
	if errors.As(d.checkKey(d.mint()), &bad) {
		return invalid(at+".NewKey", nil, "makes keys that the dialect refuses: "+bad.Why)
	}
	return nil
}

func (d Dialect) validateScope(at string) error {
	if d.Methods != nil && len(d.Methods) == 0 {
		return invalid(at+".Methods", nil, "empty; nil is the default, PlaceNone is no keys")
	}
	for i, m := range d.Methods {
		if !wire.IsToken(m) || m != strings.ToUpper(m) {
			return invalid(fmt.Sprintf("%s.Methods[%d]", at, i), m, "want a method in upper case")
		}
	}
	if d.Paths != nil && len(d.Paths) == 0 {
		return invalid(at+".Paths", nil, "empty; nil is every path, PlaceNone is no keys")
	}
	for i, p := range d.Paths {
		if fault := wire.PatternFault(p); fault != "" {
			return invalid(fmt.Sprintf("%s.Paths[%d]", at, i), p, fault)
		}
	}
	return nil
}

func (d Dialect) validateTimes(at string) error {
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"Window", d.Window}, {"Margin", d.Margin},
		{"InFlightMax", d.InFlightMax}, {"InFlightDelay", d.InFlightDelay}, {"SettlesWithin", d.SettlesWithin},
	} {
		if t.value < 0 {
			return invalid(at+"."+t.name, t.value, "negative")
		}
	}
	if d.margin() >= d.window() {
		return invalid(at+".Margin", d.Margin, fmt.Sprintf("leaves nothing of the window, %s", d.window()))
	}
	return nil
}

func (d Dialect) validateMatches(at string) error {
	for _, list := range []struct {
		name    string
		matches []Match
	}{
		{"InFlight", d.InFlight}, {"Mismatch", d.Mismatch},
		{"AlreadyDone", d.AlreadyDone}, {"NotDone", d.NotDone},
		{"Throttled", d.Throttled}, {"AtDoor", d.AtDoor}, {"Success", d.Success},
	} {
		for i, m := range list.matches {
			if err := m.validate(fmt.Sprintf("%s.%s[%d]", at, list.name, i)); err != nil {
				return err
			}
		}
	}
	if d.Replay != (Match{}) {
		return d.Replay.validate(at + ".Replay")
	}
	return nil
}

func (m Match) validate(at string) error {
	places := 0
	for _, p := range []string{m.Header, m.Path} {
		if p != "" {
			places++
		}
	}
	switch {
	case m.Value != "" && places != 1:
		return invalid(at+".Value", m.Value, "stands at exactly one of Header and Path")
	case m.Status == 0 && places == 0:
		return invalid(at, nil, "nothing to recognise an answer by")
	case m.Status != 0 && !isStatus(m.Status):
		return invalid(at+".Status", m.Status, "not an HTTP status")
	}
	for _, name := range []struct{ field, value, why string }{
		{".Header", m.Header, "not a header name"}, {".Method", m.Method, "not a method"},
	} {
		if name.value != "" && !wire.IsToken(name.value) {
			return invalid(at+name.field, name.value, name.why)
		}
	}
	if m.Path != "" && !isPath(m.Path) {
		return invalid(at+".Path", m.Path, `want a dotted path, "errors.0.code"`)
	}
	return nil
}

func isStatus(n int) bool { return n >= 100 && n <= 999 }

// isPath tells a dotted path without empty steps.
func isPath(path string) bool { return !slices.Contains(strings.Split(path, "."), "") }

func (d Dialect) validateAnswers(at string) error {
	if int(d.Accepted) >= len(acceptedNames) {
		return invalid(at+".Accepted", d.Accepted, "unknown meaning of 202")
	}
	if d.SilentStop && (d.ShouldRetry == "" || d.Shape == Match{}) {
		return invalid(at+".SilentStop", nil, "needs ShouldRetry, the header, and Shape, the answers that would have it")
	}
	if d.Shape != (Match{}) {
		if err := d.Shape.validate(at + ".Shape"); err != nil {
			return err
		}
	}
	return d.Resource.validate(at + ".Resource")
}

func (r Resource) validate(at string) error {
	if r.Header != "" && r.Path != "" {
		return invalid(at, nil, "want one of Header and Path")
	}
	if r.Header != "" && !wire.IsToken(r.Header) {
		return invalid(at+".Header", r.Header, "not a header name")
	}
	if r.URL == "" {
		return nil
	}
	if r.Path == "" || !strings.Contains(r.URL, "{id}") {
		return invalid(at+".URL", r.URL, "want {id} in it, and a Path that tells the id")
	}
	if _, err := url.Parse(strings.ReplaceAll(r.URL, "{id}", "id")); err != nil {
		return invalid(at+".URL", r.URL, "not a URL")
	}
	return nil
}

func (d Dialect) validateHeaders(at string) error {
	if d.ShouldRetry != "" && !wire.IsToken(d.ShouldRetry) {
		return invalid(at+".ShouldRetry", d.ShouldRetry, "not a header name")
	}
	if d.FirstSent != "" {
		if err := validateHeaderField(at+".FirstSent", d.FirstSent); err != nil {
			return err
		}
	}
	for i, name := range d.SignedWith {
		if !wire.IsToken(name) {
			return invalid(fmt.Sprintf("%s.SignedWith[%d]", at, i), name, "not a header name")
		}
	}
	for i, name := range d.Headers {
		field := fmt.Sprintf("%s.Headers[%d]", at, i)
		if !wire.IsToken(name) {
			return invalid(field, name, "not a header name")
		}
		if secret.IsHeader(name) {
			return invalid(field, name, "a credential may change between attempts, so it is no payload")
		}
		if d.inHeader() && strings.EqualFold(name, d.field()) || strings.EqualFold(name, d.FirstSent) {
			return invalid(field, name, "this is the dialect's own header, not payload")
		}
	}
	if d.inHeader() && strings.EqualFold(d.FirstSent, d.field()) {
		return invalid(at+".FirstSent", d.FirstSent, "the key stands there")
	}
	return nil
}

// checkKey returns an *InvalidError if the provider would refuse the key, or if
// it could not stand on the wire byte for byte.
func (d Dialect) checkKey(key Key) error {
	if n := len(key); n < d.minKey() || n > d.maxKey() {
		return invalid("Key", key, fmt.Sprintf("want %d to %d bytes", d.minKey(), d.maxKey()))
	}
	for i := range len(key) {
		c := key[i]
		inside := i > 0 && i < len(key)-1
		if (c <= ' ' || c > '~') && (c != ' ' || !inside) {
			return invalid("Key", key, "want visible ASCII; spaces only inside")
		}
		if d.Placement == PlaceQuotedHeader && (c == '"' || c == '\\') {
			return invalid("Key", key, `no " and no \ in a quoted header`)
		}
	}
	return nil
}

func invalid(field string, value any, why string) *InvalidError {
	return &InvalidError{Field: field, Value: value, Why: why}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
