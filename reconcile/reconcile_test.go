package reconcile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/mockserver"
	"github.com/idem-go/idem/reconcile"
)

// lookups answers look-ups by script and remembers what was asked.
type lookups struct {
	status int
	body   string
	asked  []string
}

func (l *lookups) client() *http.Client { return &http.Client{Transport: l} }

// RoundTrip implements http.RoundTripper.
func (l *lookups) RoundTrip(req *http.Request) (*http.Response, error) {
	l.asked = append(l.asked, req.Method+" "+req.URL.String())
	if l.status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	w.WriteHeader(l.status)
	w.WriteString(l.body)
	return w.Result(), nil
}

func TestALookUpSaysDoneForWhatItFindsAndNeverNotDone(t *testing.T) {
	old := time.Now().Add(-2 * time.Hour)
	for name, tc := range map[string]struct {
		status int
		body   string
		sent   time.Time
		fate   idem.Fate
		err    string
	}{
		"found":                     {200, `{"data":[{"id":"t1"}]}`, old, idem.FateDone, ""},
		"an empty list":             {200, `{"data":[]}`, old, idem.FateUnknown, ""},
		"an empty list, right away": {200, `{"data":[]}`, time.Now(), idem.FateUnknown, "not found"},
		"null":                      {200, `{"data":null}`, old, idem.FateUnknown, ""},
		"an error in place of it":   {200, `<html>`, old, idem.FateUnknown, "no JSON"},
		"a list that is not there":  {404, `{}`, old, idem.FateUnknown, "404"},
		"an outage":                 {503, ``, old, idem.FateUnknown, "503"},
		"a refusal":                 {401, ``, old, idem.FateUnknown, "401"},
		"no answer":                 {0, ``, old, idem.FateUnknown, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lookups{status: tc.status, body: tc.body}
			hook := reconcile.ByFilter(l.client(), "idempotency_key", "data.0")
			found, err := hook(t.Context(), idem.Entry{Key: "k 1", Method: "POST", URL: "https://api.example/transfers?x=1", FirstSent: tc.sent})
			require.Equal(t, tc.fate, found.Fate)
			require.Equal(t, []string{"GET https://api.example/transfers?idempotency_key=k+1"}, l.asked)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestByKeyAsksWhereTheTemplateSays(t *testing.T) {
	e := idem.Entry{Key: "k/1", Intent: "order 7&8", URL: "https://api.example/v1/cards", FirstSent: time.Now().Add(-day)}
	for template, want := range map[string]string{
		"/v1/cards/{key}":                    "https://api.example/v1/cards/k%2F1",
		"https://o.example/x?ref={intent}":   "https://o.example/x?ref=order+7%268",
		"https://o.example/{intent}?k={key}": "https://o.example/order%207&8?k=k%2F1",
	} {
		l := &lookups{status: 404}
		found, err := reconcile.ByKey(l.client(), template, "")(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, idem.Finding{}, found)
		require.Equal(t, []string{"GET " + want}, l.asked)
	}
	require.Panics(t, func() { reconcile.ByKey(nil, "https://api.example/cards", "") })
	require.Panics(t, func() { reconcile.ByKey(nil, "https://[{key}", "") })
	e.Intent = ""
	_, err := reconcile.ByKey(nil, "/x?ref={intent}", "")(t.Context(), e)
	require.ErrorIs(t, err, idem.ErrInvalid)
	e.URL = "" // a reservation
	_, err = reconcile.ByKey(nil, "/x/{key}", "")(t.Context(), e)
	require.ErrorIs(t, err, idem.ErrInvalid)
}

const day = 24 * time.Hour

// increase is a provider whose objects remember their keys, and whose answers to
// POSTs say 500 although the transfer is made.
func increase(t *testing.T) *mockserver.Server {
	made := map[string]json.RawMessage{}
	api := mockserver.New(&mockserver.Config{Profile: mockserver.Increase(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			list := []json.RawMessage{}
			if o, ok := made[r.URL.Query().Get("idempotency_key")]; ok {
				list = append(list, o)
			}
			json.NewEncoder(w).Encode(map[string]any{"data": list})
			return
		}
		body, _ := io.ReadAll(r.Body)
		if key := r.Header.Get("Idempotency-Key"); made[key] == nil {
			made[key] = body
		}
		w.Header().Set("X-Should-Retry", "false")
		w.Header().Set(mockserver.EffectHeader, "yes")
		w.WriteHeader(500)
	})})
	t.Cleanup(api.Close)
	return api
}

func transfer(ctx context.Context, amount int) *http.Request {
	req, err := http.NewRequestWithContext(ctx, "POST", "https://api.example/transfers", strings.NewReader(fmt.Sprintf(`{"id":"rent","amount":%d}`, amount)))
	if err != nil {
		panic(err)
	}
	return req
}

func TestA500ThatHidesATransferIsFoundByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := increase(t)
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: api.Transport(), Dialect: dialect.Increase(),
			Reconcile: reconcile.ByFilter(&http.Client{Transport: api.Transport()}, "idempotency_key", "data.0")})
		require.NoError(t, err)
		defer c.Close()
		resp, err := c.Do(transfer(idem.WithIntent(t.Context(), "rent"), 500))
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
		body, _ := io.ReadAll(resp.Body)
		require.JSONEq(t, `{"id":"rent","amount":500}`, string(body))
		require.Equal(t, 1, api.Effects("rent"))
		require.Len(t, api.Keys("rent"), 1)
	})
}

// The key was somebody else's: what stands under it isn't this transfer.
func TestWhatStandsUnderTheKeyForAnotherPayloadIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := increase(t)
		key := idem.WithKey(t.Context(), idem.NewKey())
		var ends []idem.Fate
		for _, amount := range []int{500, 900} {
			c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: api.Transport(), Dialect: dialect.Increase(),
				Reconcile: reconcile.ByFilter(&http.Client{Transport: api.Transport()}, "idempotency_key", "data.0")})
			require.NoError(t, err)
			defer c.Close()
			api.Script(mockserver.Fault{Kind: mockserver.FaultNone})
			resp, err := c.Do(transfer(key, amount))
			ends = append(ends, idem.FateOf(resp, err))
			if amount == 900 {
				require.ErrorIs(t, err, idem.ErrMismatch)
			}
		}
		require.Equal(t, []idem.Fate{idem.FateDone, idem.FateUnknown}, ends)
	})
}

// thermostat shows what was PUT last, nothing after a DELETE, and always newer once
// something came. Nothing is shown as the status none.
func thermostat(t *testing.T, newer string, none int) *mockserver.Server {
	state := `{"target":15}`
	api := mockserver.New(&mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case "GET":
			if state == "" {
				w.WriteHeader(none)
			}
			io.WriteString(w, state)
			return
		case "PUT":
			body, _ := io.ReadAll(r.Body)
			state = string(body)
		case "DELETE":
			state = ""
		}
		if newer != "" {
			state = newer
		}
	})})
	t.Cleanup(api.Close)
	return api
}

func TestAPutThatMayBeStaleIsDoneOnlyIfItStandsThere(t *testing.T) {
	for name, tc := range map[string]struct {
		method, body string
		applied      bool
		newer        string
		none         int
		fate         idem.Fate
	}{
		"a PUT that stands":       {"PUT", `{"target":18.0,"days":[1,2],"mode":{"eco":true}}`, true, `{"target":18,"days":[1,2],"mode":{"eco":true,"v":1}}`, 404, idem.FateDone},
		"a PUT that was lost":     {"PUT", `{"target":18}`, false, "", 404, idem.FateUnknown},
		"a PUT that was followed": {"PUT", `{"target":18}`, true, `{"target":22}`, 404, idem.FateUnknown},
		"a part of it stands":     {"PUT", `{"target":18,"mode":"eco"}`, true, `{"mode":"eco"}`, 404, idem.FateUnknown},
		"a DELETE that was done":  {"DELETE", ``, true, "", 410, idem.FateDone},
		"a 404 after a DELETE":    {"DELETE", ``, true, "", 404, idem.FateUnknown},
		"a DELETE that was lost":  {"DELETE", ``, false, "", 410, idem.FateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := thermostat(t, tc.newer, tc.none)
				c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: api.Transport(), Retry: idem.RetryPolicy{MaxAttempts: 1},
					Reconcile: reconcile.ByLocation(&http.Client{Transport: api.Transport()})})
				require.NoError(t, err)
				defer c.Close()
				req, err := http.NewRequestWithContext(idem.WithIntent(t.Context(), "set"), tc.method, "https://home.example/thermostat", strings.NewReader(tc.body))
				require.NoError(t, err)
				api.Script(mockserver.Fault{Kind: mockserver.FaultReset, After: tc.applied})
				resp, err := c.Do(req)
				require.Equal(t, tc.fate, idem.FateOf(resp, err), "%v", err)
				e, err := c.Lookup(t.Context(), "set")
				require.NoError(t, err)
				require.Equal(t, tc.fate == idem.FateDone, e.State == idem.StateSettled)
				require.Len(t, api.Keys("thermostat"), 1)
			})
		})
	}
}

func TestByLocationDoesNotJudgeAPost(t *testing.T) {
	_, err := reconcile.ByLocation(nil)(t.Context(), idem.Entry{Method: "POST", URL: "https://api.example/x"})
	require.ErrorIs(t, err, idem.ErrInvalid)
}
