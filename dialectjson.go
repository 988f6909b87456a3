package idem

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// ParseDialect reads a dialect from JSON and validates it. Members are named as
// the fields in snake case ("in_flight_max"), durations are written
// "24h" or "forever", placements and meanings of 202 by their names. An
// unknown member, a duration or name that can't be read, and a dialect that
// makes no sense are an [*InvalidError].
func ParseDialect(b []byte) (Dialect, error) {
	var d Dialect
	if err := json.Unmarshal(b, &d); err != nil {
		var bad *InvalidError
		if errors.As(err, &bad) {
			return Dialect{}, bad
		}
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return Dialect{}, invalid("Dialect."+kind.Field, kind.Value, wantedJSON(kind.Type))
		}
		return Dialect{}, invalid("Dialect", nil, err.Error())
	}
	if err := d.validate(); err != nil {
		return Dialect{}, err
	}
	return d, nil
}

// wantedJSON says in JSON's words what should stand where something else does.
func wantedJSON(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[jsonDuration]():
		return `want a duration in quotes, such as "24h" or "forever"`
	case reflect.TypeFor[Placement](), reflect.TypeFor[Accepted]():
		return "want a name in quotes"
	}
	return "want " + map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int: "a number", reflect.Int64: "a number", reflect.String: "a text in quotes",
		reflect.Slice: "a list", reflect.Struct: "an object",
	}[t.Kind()]
}

// dialectJSON is a Dialect as JSON has it. Every field but NewKey is in it.
type dialectJSON struct {
	Name          string       `json:"name,omitzero"`
	Placement     Placement    `json:"placement,omitzero"`
	Field         string       `json:"field,omitzero"`
	KeyForm       KeyForm      `json:"key_form,omitzero"`
	MinKey        int          `json:"min_key,omitzero"`
	MaxKey        int          `json:"max_key,omitzero"`
	FirstSent     string       `json:"first_sent,omitzero"`
	Methods       []string     `json:"methods,omitzero"`
	Paths         []string     `json:"paths,omitzero"`
	Routes        []Dialect    `json:"routes,omitzero"`
	Window        jsonDuration `json:"window,omitzero"`
	Margin        jsonDuration `json:"margin,omitzero"`
	InFlightMax   jsonDuration `json:"in_flight_max,omitzero"`
	InFlightDelay jsonDuration `json:"in_flight_delay,omitzero"`
	KeyFirst      bool         `json:"key_first,omitzero"`
	InFlight      []Match      `json:"in_flight,omitzero"`
	Mismatch      []Match      `json:"mismatch,omitzero"`
	AlreadyDone   []Match      `json:"already_done,omitzero"`
	NotDone       []Match      `json:"not_done,omitzero"`
	Throttled     []Match      `json:"throttled,omitzero"`
	AtDoor        []Match      `json:"at_door,omitzero"`
	Success       []Match      `json:"success,omitzero"`
	SettlesWithin jsonDuration `json:"settles_within,omitzero"`
	SignedWith    []string     `json:"signed_with,omitzero"`
	Replay        Match        `json:"replay,omitzero"`
	Resource      Resource     `json:"resource,omitzero"`
	Accepted      Accepted     `json:"accepted,omitzero"`
	ShouldRetry   string       `json:"should_retry,omitzero"`
	SilentStop    bool         `json:"silent_stop,omitzero"`
	Shape         Match        `json:"shape,omitzero"`
	Headers       []string     `json:"headers,omitzero"`
	Source        string       `json:"source,omitzero"`
	Checked       string       `json:"checked,omitzero"`
	Unverified    []string     `json:"unverified,omitzero"`
}

// MarshalJSON writes what [ParseDialect] reads, without zero fields and NewKey.
func (d Dialect) MarshalJSON() ([]byte, error) {
	return json.Marshal(dialectJSON{
		Name: d.Name, Placement: d.Placement, Field: d.Field, KeyForm: d.KeyForm,
		MinKey: d.MinKey, MaxKey: d.MaxKey, FirstSent: d.FirstSent,
		Methods: d.Methods, Paths: d.Paths, Routes: d.Routes,
		Window: jsonDuration(d.Window), Margin: jsonDuration(d.Margin),
		InFlightMax: jsonDuration(d.InFlightMax), InFlightDelay: jsonDuration(d.InFlightDelay),
		KeyFirst: d.KeyFirst, InFlight: d.InFlight, Mismatch: d.Mismatch,
		AlreadyDone: d.AlreadyDone, NotDone: d.NotDone, Replay: d.Replay,
		Throttled: d.Throttled, AtDoor: d.AtDoor, Success: d.Success,
		SettlesWithin: jsonDuration(d.SettlesWithin), SignedWith: d.SignedWith,
		Resource: d.Resource, Accepted: d.Accepted, ShouldRetry: d.ShouldRetry,
		SilentStop: d.SilentStop, Shape: d.Shape, Headers: d.Headers,
		Source: d.Source, Checked: d.Checked, Unverified: d.Unverified,
	})
}

// UnmarshalJSON reads what MarshalJSON writes and refuses unknown members, for a
// misspelt one would silently be a default. It doesn't validate; [ParseDialect]
// does.
func (d *Dialect) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var j dialectJSON
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return err
	}
	*d = Dialect{
		Name: j.Name, Placement: j.Placement, Field: j.Field, KeyForm: j.KeyForm,
		MinKey: j.MinKey, MaxKey: j.MaxKey, FirstSent: j.FirstSent,
		Methods: j.Methods, Paths: j.Paths, Routes: j.Routes,
		Window: time.Duration(j.Window), Margin: time.Duration(j.Margin),
		InFlightMax: time.Duration(j.InFlightMax), InFlightDelay: time.Duration(j.InFlightDelay),
		KeyFirst: j.KeyFirst, InFlight: j.InFlight, Mismatch: j.Mismatch,
		AlreadyDone: j.AlreadyDone, NotDone: j.NotDone, Replay: j.Replay,
		Throttled: j.Throttled, AtDoor: j.AtDoor, Success: j.Success,
		SettlesWithin: time.Duration(j.SettlesWithin), SignedWith: j.SignedWith,
		Resource: j.Resource, Accepted: j.Accepted, ShouldRetry: j.ShouldRetry,
		SilentStop: j.SilentStop, Shape: j.Shape, Headers: j.Headers,
		Source: j.Source, Checked: j.Checked, Unverified: j.Unverified,
	}
	return nil
}

// jsonDuration is a duration that people can read: "24h", "90s", "forever".
type jsonDuration time.Duration

func (t jsonDuration) MarshalText() ([]byte, error) {
	if time.Duration(t) == Forever {
		return []byte("forever"), nil
	}
	s := time.Duration(t).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return []byte(s), nil
}

func (t *jsonDuration) UnmarshalText(b []byte) error {
	if string(b) == "forever" {
		*t = jsonDuration(Forever)
		return nil
	}
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return invalid("Dialect", string(b), `want a duration such as "24h" or "90s", or "forever"`)
	}
	*t = jsonDuration(v)
	return nil
}

// MarshalText writes the placement's name.
func (p Placement) MarshalText() ([]byte, error) {
	return marshalName("Dialect.Placement", placementNames, int(p))
}

// UnmarshalText reads the placement's name.
func (p *Placement) UnmarshalText(b []byte) error {
	i, err := unmarshalName("Dialect.Placement", placementNames, string(b))
	*p = Placement(i)
	return err
}

// MarshalText writes the meaning's name.
func (a Accepted) MarshalText() ([]byte, error) {
	return marshalName("Dialect.Accepted", acceptedNames, int(a))
}

// UnmarshalText reads the meaning's name.
func (a *Accepted) UnmarshalText(b []byte) error {
	i, err := unmarshalName("Dialect.Accepted", acceptedNames, string(b))
	*a = Accepted(i)
	return err
}

func marshalName(field string, names []string, i int) ([]byte, error) {
	if i >= len(names) {
		return nil, invalid(field, i, "unknown")
	}
	return []byte(names[i]), nil
}

func unmarshalName(field string, names []string, name string) (int, error) {
	i := slices.Index(names, name)
	if i < 0 {
		return 0, invalid(field, name, fmt.Sprintf("want one of %s", strings.Join(names, ", ")))
	}
	return i, nil
}
