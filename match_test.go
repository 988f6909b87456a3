package idem

import (
	"net/http"
	"strings"
	"testing"

	"github.com/idem-go/idem/internal/wire"
	"github.com/stretchr/testify/require"
)

func TestAMatchHoldsIfAllThatIsSetHolds(t *testing.T) {
	answer := func(body string) *matchInput {
		return &matchInput{Method: "POST", Status: 409, Document: wire.Document{Body: []byte(body)},
			Header: http.Header{"X-Code": {"Busy", "other"}, "Empty": {""}}}
	}
	const body = `{"error":{"code":"in_use","n":704,"f":704.0,"big":12345678901234567890,"ok":true,"nil":null,"list":[1]},
		"errors":[{"code":"a"},{"code":"b"}],"0":"zero"}`
	for name, tc := range map[string]struct {
		m    Match
		body string
		want bool
	}{
		"nothing":                      {Match{}, body, false},
		"the method alone":             {Match{Method: "POST"}, body, false},
		"the status":                   {Match{Status: 409}, body, true},
		"another status":               {Match{Status: 422}, body, false},
		"status and method":            {Match{Status: 409, Method: "POST"}, body, true},
		"another method":               {Match{Status: 409, Method: "DELETE"}, body, false},
		"a header":                     {Match{Header: "x-code"}, body, true},
		"an empty header is there":     {Match{Header: "Empty"}, body, true},
		"an absent header":             {Match{Header: "X-None"}, body, false},
		"a header's value in any case": {Match{Header: "X-Code", Value: "busy"}, body, true},
		"a header's second value":      {Match{Header: "X-Code", Value: "other"}, body, true},
		"another header value":         {Match{Header: "X-Code", Value: "bus"}, body, false},
		"a string":                     {Match{Path: "error.code", Value: "in_use"}, body, true},
		"a string in another case":     {Match{Path: "error.code", Value: "IN_USE"}, body, false},
		"a number":                     {Match{Path: "error.n", Value: "704"}, body, true},
		"a number as it is written":    {Match{Path: "error.f", Value: "704.0"}, body, true},
		"a number written otherwise":   {Match{Path: "error.f", Value: "704"}, body, false},
		"a big number":                 {Match{Path: "error.big", Value: "12345678901234567890"}, body, true},
		"a boolean":                    {Match{Path: "error.ok", Value: "true"}, body, true},
		"anything at a path":           {Match{Path: "error.list"}, body, true},
		"null is nothing":              {Match{Path: "error.nil"}, body, false},
		"an object has no value":       {Match{Path: "error", Value: "map"}, body, false},
		"an index":                     {Match{Path: "errors.1.code", Value: "b"}, body, true},
		"an index beyond the end":      {Match{Path: "errors.2.code"}, body, false},
		"a negative index":             {Match{Path: "errors.-1"}, body, false},
		"a number that is a name":      {Match{Path: "0", Value: "zero"}, body, true},
		"a name in an array":           {Match{Path: "errors.code"}, body, false},
		"a step into a string":         {Match{Path: "error.code.x"}, body, false},
		"an absent path":               {Match{Path: "nope"}, body, false},
		"the status but not the path":  {Match{Status: 409, Path: "nope"}, body, false},
		"header and path":              {Match{Header: "X-Code", Path: "error"}, body, true},
		"an array as body":             {Match{Path: "0.code", Value: "a"}, `[{"code":"a"}]`, true},
		"no JSON":                      {Match{Path: "error"}, `<html>`, false},
		"half of JSON":                 {Match{Path: "error"}, `{"error":1`, false},
		"no body":                      {Match{Path: "error"}, ``, false},
		"a body that is too long":      {Match{Path: "error"}, `{"error":"` + strings.Repeat("x", 1<<20) + `"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.m.matches(answer(tc.body)))
			require.Equal(t, tc.want, matchAny([]Match{{Status: 1}, tc.m}, answer(tc.body)))
		})
	}
	require.False(t, matchAny(nil, answer(body)))
}

func TestTextAtAPathIsFoundForResources(t *testing.T) {
	m := &matchInput{Document: wire.Document{Body: []byte(`{"links":{"id":"PM1"},"n":7,"o":{}}`)}}
	for path, want := range map[string]string{"links.id": "PM1", "n": "7"} {
		got, ok := m.LookupText(path)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, path := range []string{"o", "x"} {
		_, ok := m.LookupText(path)
		require.False(t, ok)
	}
}

func TestTheDialectsOwnHintIsRead(t *testing.T) {
	stripe := Dialect{ShouldRetry: "Stripe-Should-Retry"}
	adyen := Dialect{ShouldRetry: "transient-error", SilentStop: true, Shape: Match{Path: "errorCode"}}
	for name, tc := range map[string]struct {
		d         Dialect
		header    string
		body      string
		value, ok bool
	}{
		"no such hint":                      {Dialect{}, "Should-Retry: true", "", false, false},
		"retry":                             {stripe, "Stripe-Should-Retry: true", "", true, true},
		"stop":                              {stripe, "stripe-should-retry: False", "", false, true},
		"silence":                           {stripe, "", `{"errorCode":"1"}`, false, false},
		"garbage":                           {stripe, "Stripe-Should-Retry: 1", "", false, false},
		"silence in an answer of its shape": {adyen, "", `{"errorCode":"704"}`, false, true},
		"garbage in an answer of its shape": {adyen, "Transient-Error: 1", `{"errorCode":"704"}`, false, true},
		"silence in somebody else's answer": {adyen, "", `<html>`, false, false},
		"a word in an answer of its shape":  {adyen, "Transient-Error: true", `{"errorCode":"704"}`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			value, ok := tc.d.shouldRetry(&matchInput{Status: 500, Header: headerLines(tc.header), Document: wire.Document{Body: []byte(tc.body)}})
			require.Equal(t, []bool{tc.value, tc.ok}, []bool{value, ok})
		})
	}
}

func headerLines(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(name, strings.TrimPrefix(value, " "))
		}
	}
	return h
}
