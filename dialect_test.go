package idem

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestZeroDialectIsValidAndDocumentsItsDefaults(t *testing.T) {
	var d Dialect
	require.NoError(t, d.validate())
	require.Equal(t, "Idempotency-Key", d.field())
	require.Equal(t, 24*time.Hour, d.window())
	require.Equal(t, 5*time.Minute, d.margin())
	require.Equal(t, 15*time.Minute, d.inFlightMax())
	require.Equal(t, []string{"POST", "PATCH"}, d.methods())
	require.Equal(t, 1, d.minKey())
	require.Equal(t, 255, d.maxKey())
	require.Equal(t, Match{Header: "Idempotent-Replayed", Value: "true"}, d.replay())
	require.EqualValues(t, 7, uuid.MustParse(string(d.mint())).Version())
	require.Equal(t, Dialect{}, d, "the getters write nothing back")
}

func TestMarginOfAShortWindowIsATenthOfIt(t *testing.T) {
	require.Equal(t, 3*time.Second, Dialect{Window: 30 * time.Second}.margin())
	require.Equal(t, 5*time.Minute, Dialect{Window: Forever}.margin())
	require.Equal(t, time.Second, Dialect{Margin: time.Second}.margin())
}

func TestMintFollowsTheKeyForm(t *testing.T) {
	v4 := Dialect{KeyForm: KeyUUIDv4}
	require.EqualValues(t, 4, uuid.MustParse(string(v4.mint())).Version())
	own := Dialect{KeyForm: KeyUUIDv4, NewKey: func() Key { return "mine" }}
	require.Equal(t, Key("mine"), own.mint())
}

func TestAnInvalidDialectNamesItsField(t *testing.T) {
	header := []Match{{Header: "X", Value: "1"}}
	for name, tc := range map[string]struct {
		d     Dialect
		field string
	}{
		"a negative window":              {Dialect{Window: -1}, "Dialect.Window"},
		"a negative margin":              {Dialect{Margin: -1}, "Dialect.Margin"},
		"a margin as long as the window": {Dialect{Window: time.Hour, Margin: time.Hour}, "Dialect.Margin"},
		"a negative in-flight cap":       {Dialect{InFlightMax: -1}, "Dialect.InFlightMax"},
		"a negative in-flight delay":     {Dialect{InFlightDelay: -1}, "Dialect.InFlightDelay"},
		"limits the wrong way round":     {Dialect{MinKey: 9, MaxKey: 8}, "Dialect.MinKey"},
		"a minimum above the default":    {Dialect{MinKey: 300}, "Dialect.MinKey"},
		"a negative limit":               {Dialect{MaxKey: -1}, "Dialect.MaxKey"},
		"keys longer than the limit":     {Dialect{MaxKey: 32}, "Dialect.NewKey"},
		"keys that no header can carry":  {Dialect{NewKey: func() Key { return "a\nb" }}, "Dialect.NewKey"},
		"an unknown key form":            {Dialect{KeyForm: "ulid"}, "Dialect.KeyForm"},
		"an unknown placement":           {Dialect{Placement: 99}, "Dialect.Placement"},
		"JSON without a path":            {Dialect{Placement: PlaceJSON}, "Dialect.Field"},
		"JSON with an empty step":        {Dialect{Placement: PlaceJSON, Field: "a..b"}, "Dialect.Field"},
		"a query without a parameter":    {Dialect{Placement: PlaceQuery}, "Dialect.Field"},
		"a form without a field":         {Dialect{Placement: PlaceForm}, "Dialect.Field"},
		"the key in a credential":        {Dialect{Placement: PlaceQuery, Field: "access_token"}, "Dialect.Field"},
		"a header name with a space":     {Dialect{Field: "Idempotency Key"}, "Dialect.Field"},
		"the key as Authorization":       {Dialect{Field: "authorization"}, "Dialect.Field"},
		"the key as Content-Length":      {Dialect{Field: "Content-Length"}, "Dialect.Field"},
		"a field without a placement":    {Dialect{Placement: PlaceNone, Field: "X"}, "Dialect.Field"},
		"a long name":                    {Dialect{Name: strings.Repeat("n", 65)}, "Dialect.Name"},
		"a date that is none":            {Dialect{Checked: "2026-13-01"}, "Dialect.Checked"},
		"a method in lower case":         {Dialect{Methods: []string{"POST", "put"}}, "Dialect.Methods[1]"},
		"an empty list of methods":       {Dialect{Methods: []string{}}, "Dialect.Methods"},
		"an empty list of paths":         {Dialect{Paths: []string{}}, "Dialect.Paths"},
		"a pattern without a slash":      {Dialect{Paths: []string{"v1/x"}}, "Dialect.Paths[0]"},
		"a broken pattern":               {Dialect{Paths: []string{"/v1", "/[a"}}, "Dialect.Paths[1]"},
		"** in the middle":               {Dialect{Paths: []string{"/**/x"}}, "Dialect.Paths[0]"},
		"an empty match":                 {Dialect{InFlight: []Match{{}}}, "Dialect.InFlight[0]"},
		"a match of a method alone":      {Dialect{NotDone: []Match{{Method: "POST"}}}, "Dialect.NotDone[0]"},
		"a value that stands nowhere":    {Dialect{Mismatch: []Match{{Status: 409, Value: "x"}}}, "Dialect.Mismatch[0].Value"},
		"a value alone":                  {Dialect{Replay: Match{Value: "x"}}, "Dialect.Replay.Value"},
		"a value at two places":          {Dialect{AlreadyDone: []Match{header[0], {Header: "X", Path: "x", Value: "1"}}}, "Dialect.AlreadyDone[1].Value"},
		"a status that is none":          {Dialect{InFlight: []Match{{Status: 99}}}, "Dialect.InFlight[0].Status"},
		"a path with an empty step":      {Dialect{InFlight: []Match{{Path: "a."}}}, "Dialect.InFlight[0].Path"},
		"an unknown meaning of 202":      {Dialect{Accepted: 9}, "Dialect.Accepted"},
		"silence without a header":       {Dialect{SilentStop: true, Shape: header[0]}, "Dialect.SilentStop"},
		"silence without a shape":        {Dialect{SilentStop: true, ShouldRetry: "X"}, "Dialect.SilentStop"},
		"two resources":                  {Dialect{Resource: Resource{Header: "Location", Path: "id"}}, "Dialect.Resource"},
		"a resource without its id":      {Dialect{Resource: Resource{Path: "id", URL: "/x"}}, "Dialect.Resource.URL"},
		"a payload header with a secret": {Dialect{Headers: []string{"Accept", "X-Api-Key"}}, "Dialect.Headers[1]"},
		"the key as a payload header":    {Dialect{Headers: []string{"idempotency-key"}}, "Dialect.Headers[0]"},
		"the first send in the key":      {Dialect{FirstSent: "idempotency-key"}, "Dialect.FirstSent"},
		"a route that covers all":        {Dialect{Routes: []Dialect{{}}}, "Dialect.Routes[0].Paths"},
		"a route with routes": {Dialect{Routes: []Dialect{{Paths: []string{"/a"},
			Routes: []Dialect{{Paths: []string{"/b"}}}}}}, "Dialect.Routes[0].Routes"},
		"a wrong field of the second route": {Dialect{Routes: []Dialect{{Paths: []string{"/a"}},
			{Paths: []string{"/b"}, Placement: PlaceForm}}}, "Dialect.Routes[1].Field"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.d.validate()
			require.ErrorIs(t, err, ErrInvalid)
			var bad *InvalidError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tc.field, bad.Field)
			require.NotEmpty(t, bad.Why)
		})
	}
}

func TestKeysAreCheckedBeforeTheyTravel(t *testing.T) {
	quoted := Dialect{Placement: PlaceQuotedHeader}
	short := Dialect{MinKey: 4, MaxKey: 36}
	for name, tc := range map[string]struct {
		d   Dialect
		key Key
		ok  bool
	}{
		"a UUID":                  {short, "0198c5f5-0000-7000-8000-000000000000", true},
		"the shortest":            {short, "abcd", true},
		"too short":               {short, "abc", false},
		"too long":                {short, Key(strings.Repeat("x", 37)), false},
		"empty":                   {Dialect{}, "", false},
		"a space inside":          {Dialect{}, "a b", true},
		"a space in front":        {Dialect{}, " ab", false},
		"a space behind":          {Dialect{}, "ab ", false},
		"only a space":            {Dialect{}, " ", false},
		"a tab":                   {Dialect{}, "a\tb", false},
		"a line break":            {Dialect{}, "a\r\nX: y", false},
		"a letter beyond ASCII":   {Dialect{}, "clé", false},
		"DEL":                     {Dialect{}, "a\x7fb", false},
		"a quote in a raw header": {Dialect{}, `a"b`, true},
		"a quote in a quoted one": {quoted, `a"b`, false},
		"a backslash in a quoted": {quoted, `a\b`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.d.checkKey(tc.key); tc.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrInvalid)
			}
		})
	}
}

func TestRoutesAreTriedBeforeTheDialectsOwnMethodsAndPaths(t *testing.T) {
	d := Dialect{
		Name:    "p",
		Methods: []string{"POST"},
		Paths:   []string{"/v1/*", "/v1/orders/**", "/v2/**"},
		Routes: []Dialect{
			{Paths: []string{"/v2/**"}, Methods: []string{"POST", "DELETE"}, Window: time.Hour},
			{Name: "mute", Paths: []string{"/v1/mute"}, Placement: PlaceNone},
		},
	}
	require.NoError(t, d.validate())
	for name, tc := range map[string]struct {
		method, path string
		window       time.Duration
		named        string
		keyed        bool
	}{
		"its own path":                     {"POST", "/v1/charges", 24 * time.Hour, "p", true},
		"a method outside":                 {"PATCH", "/v1/charges", 24 * time.Hour, "p", false},
		"a path outside":                   {"POST", "/v3/charges", 24 * time.Hour, "p", false},
		"one level more than a star":       {"POST", "/v1/charges/1", 24 * time.Hour, "p", false},
		"below":                            {"POST", "/v1/orders/1/capture", 24 * time.Hour, "p", true},
		"below is not the trunk":           {"POST", "/v2", 24 * time.Hour, "p", false},
		"a slash escaped inside a segment": {"POST", "/v1/a%2Fb", 24 * time.Hour, "p", true},
		"an escaped letter":                {"POST", "/v1/%6Dute", 24 * time.Hour, "mute", false},
		"a route":                          {"POST", "/v2/x/y", time.Hour, "p", true},
		"a route's further method":         {"DELETE", "/v2/x", time.Hour, "p", true},
		"a method outside the route":       {"PUT", "/v2/x", 24 * time.Hour, "p", false},
		"a route without keys":             {"POST", "/v1/mute", 24 * time.Hour, "mute", false},
		"no path at all":                   {"POST", "", 24 * time.Hour, "p", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, keyed := d.route(tc.method, tc.path)
			require.Equal(t, tc.keyed, keyed)
			require.Equal(t, tc.window, got.window())
			require.Equal(t, tc.named, got.Name)
			require.Nil(t, got.Routes)
		})
	}
}

func TestADialectWithoutPathsCoversEveryPath(t *testing.T) {
	_, keyed := Dialect{}.route("POST", "")
	require.True(t, keyed)
	_, keyed = Dialect{Paths: []string{"/**"}}.route("POST", "")
	require.True(t, keyed)
	_, keyed = Dialect{Placement: PlaceNone}.route("POST", "/")
	require.False(t, keyed)
}

func fullDialect() Dialect {
	return Dialect{
		Name: "full", Placement: PlaceQuotedHeader, Field: "X-Key", KeyForm: KeyUUIDv4,
		MinKey: 2, MaxKey: 99, FirstSent: "X-First",
		Methods: []string{"POST", "DELETE"}, Paths: []string{"/v1/**"},
		Routes: []Dialect{{Placement: PlaceNone, Paths: []string{"/v1/mute"}}},
		Window: 36 * time.Hour, Margin: 90 * time.Second, InFlightMax: time.Hour,
		InFlightDelay: 1500 * time.Millisecond, KeyFirst: true,
		InFlight:    []Match{{Status: 409, Path: "error.code", Value: "in_use"}},
		Mismatch:    []Match{{Status: 422}},
		AlreadyDone: []Match{{Method: "POST", Status: 409, Path: "links.resource"}},
		NotDone:     []Match{{Status: 500, Header: "X-Refused"}},
		Replay:      Match{Header: "X-Replay", Value: "yes"},
		Resource:    Resource{Path: "id", URL: "/v1/things/{id}"},
		Accepted:    AcceptedPoll, ShouldRetry: "X-Retry", SilentStop: true,
		Shape: Match{Path: "error"}, Headers: []string{"Accept"},
		Source: "https://example.com", Checked: "2026-09-30", Unverified: []string{"Window"},
	}
}

func TestADialectSurvivesJSON(t *testing.T) {
	for _, d := range []Dialect{{}, {Window: Forever}, fullDialect()} {
		b, err := json.Marshal(d)
		require.NoError(t, err)
		got, err := ParseDialect(b)
		require.NoError(t, err)
		require.Equal(t, d, got, string(b))
	}
}

func TestADialectReadsWellAsJSON(t *testing.T) {
	d, err := ParseDialect([]byte(`{
		"name": "acme", "placement": "json", "field": "meta.request_id",
		"key_form": "uuidv4", "window": "720h", "in_flight_delay": "30s",
		"in_flight": [{"status": 409, "path": "code", "value": "busy"}],
		"accepted": "poll",
		"routes": [{"paths": ["/ping"], "placement": "none"}]
	}`))
	require.NoError(t, err)
	require.Equal(t, Dialect{
		Name: "acme", Placement: PlaceJSON, Field: "meta.request_id", KeyForm: KeyUUIDv4,
		Window: 720 * time.Hour, InFlightDelay: 30 * time.Second,
		InFlight: []Match{{Status: 409, Path: "code", Value: "busy"}}, Accepted: AcceptedPoll,
		Routes: []Dialect{{Paths: []string{"/ping"}, Placement: PlaceNone}},
	}, d)
	b, err := json.Marshal(Dialect{Window: 720 * time.Hour, InFlightMax: 10 * time.Minute, Margin: 90 * time.Second})
	require.NoError(t, err)
	require.JSONEq(t, `{"window":"720h","in_flight_max":"10m","margin":"1m30s"}`, string(b))
}

func TestJSONThatIsNoDialectIsRefused(t *testing.T) {
	for name, b := range map[string]string{
		"a misspelt member":            `{"windows":"24h"}`,
		"a misspelt member of a match": `{"in_flight":[{"state":409}]}`,
		"a misspelt member of a route": `{"routes":[{"paths":["/a"],"windows":"24h"}]}`,
		"a window without a unit":      `{"window":"24"}`,
		"a window as a number":         `{"window":24}`,
		"an unknown placement":         `{"placement":"cookie"}`,
		"an unknown 202":               `{"accepted":"maybe"}`,
		"a dialect that isn't valid":   `{"window":"-1s"}`,
		"an array":                     `[]`,
		"no JSON":                      `{"name":`,
		"something behind":             `{} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseDialect([]byte(b))
			require.ErrorIs(t, err, ErrInvalid)
		})
	}
}

func FuzzDialectJSON(f *testing.F) {
	full, err := json.Marshal(fullDialect())
	require.NoError(f, err)
	f.Add(full)
	f.Add([]byte(`{"window":"forever","routes":[{"paths":["/a/**"]}]}`))
	f.Add([]byte(`{"placement":"json","field":"a.b","min_key":36,"max_key":36}`))
	f.Add([]byte(`{"methods":[],"replay":{"path":"x","value":"1"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDialect(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := json.Marshal(d)
		require.NoError(t, err)
		got, err := ParseDialect(again)
		require.NoError(t, err)
		require.Equal(t, d, got)
		require.NoError(t, d.checkKey(d.mint()))
	})
}
