// Package compute_test drives Google's Compute Engine client (REST) over
// Client.HTTPClient with dialect.GoogleCompute, against a stub.
//
// What works. The SDK sends no requestId by itself; the client adds one to the query, a
// UUIDv4, and keeps one that the caller gave. A name keeps its requestId over a restart.
// Refusals stay the SDK's *googleapi.Error.
//
// Attempts: the SDK retries neither 503 nor a lost answer, so they are the client's: 1
// by itself, 3 of 3 over it.
package compute_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/wire"
)

// zone is a stub of compute.instances.insert: the same requestId is the same
// operation, and without one every request makes a machine.
type zone struct {
	mu       sync.Mutex
	held     map[string]string // requestId to operation
	machines int
	busy     int // 503s to give first
}

func (z *zone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	z.mu.Lock()
	defer z.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if z.busy > 0 {
		z.busy--
		w.WriteHeader(503)
		io.WriteString(w, `{"error":{"code":503,"message":"The service is unavailable."}}`)
		return
	}
	var in struct{ Name string }
	if r.Method != "POST" || r.URL.Path != "/projects/p/zones/z/instances" || json.Unmarshal(body, &in) != nil {
		http.Error(w, "{}", 404)
		return
	}
	id := r.URL.Query().Get("requestId")
	if u, err := uuid.Parse(id); id != "" && (err != nil || u == uuid.Nil) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":{"code":400,"message":"Invalid value for field 'requestId'"}}`)
		return
	}
	op, known := z.held[id]
	if !known || id == "" {
		z.machines++
		op = fmt.Sprintf("operation-%d", z.machines)
		z.held[id] = op
	}
	fmt.Fprintf(w, `{"name":%q,"targetLink":"zones/z/instances/%s"}`, op, in.Name)
}

func start(t *testing.T) (*zone, *wire.Proxy) {
	z := &zone{held: map[string]string{}}
	return z, wire.Start(t, z)
}

func journal(t *testing.T) string { return filepath.Join(t.TempDir(), "machines.db") }

func open(t *testing.T, path string, attempts int) *idem.Client {
	c, err := idem.Open(path, &idem.Options{
		Scope: "compute", Dialect: dialect.GoogleCompute(),
		Retry: idem.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Millisecond, NoBudget: true},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func sdk(t *testing.T, hc *http.Client, base string) *compute.Service {
	s, err := compute.NewService(t.Context(), option.WithHTTPClient(hc), option.WithEndpoint(base+"/"))
	require.NoError(t, err)
	return s
}

func insert(ctx context.Context, s *compute.Service, name string) (*compute.Operation, error) {
	return s.Instances.Insert("p", "z", &compute.Instance{Name: name}).Context(ctx).Do()
}

func requestID(r wire.Request) string {
	u, err := http.NewRequest(r.Method, r.URL, nil)
	if err != nil {
		return err.Error()
	}
	return u.URL.Query().Get("requestId")
}

func TestTheSDKSendsNoRequestIdByItselfAndTheClientAddsOneThatALostAnswerIsFetchedUnder(t *testing.T) {
	z, api := start(t)
	_, err := insert(t.Context(), sdk(t, &http.Client{}, api.URL), "alone")
	require.NoError(t, err)
	require.Equal(t, []string{""}, api.Distinct(requestID))

	api.Lose(1)
	var r idem.Result
	op, err := insert(idem.WithResult(t.Context(), &r), sdk(t, open(t, journal(t), 6).HTTPClient(), api.URL), "under")
	require.NoError(t, err)
	require.Equal(t, "operation-2", op.Name)
	require.Equal(t, []string{"", string(r.Key)}, api.Distinct(requestID))
	require.EqualValues(t, 4, uuid.MustParse(string(r.Key)).Version())
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, 2, z.machines)
}

func TestARequestIdThatTheCallerGaveToTheSDKIsFoundAndKept(t *testing.T) {
	z, api := start(t)
	c := open(t, journal(t), 6)
	given := uuid.NewString()
	api.Lose(1)
	for range 2 {
		_, err := sdk(t, c.HTTPClient(), api.URL).Instances.Insert("p", "z", &compute.Instance{Name: "m"}).RequestId(given).Context(t.Context()).Do()
		require.NoError(t, err)
	}
	require.Equal(t, []string{given}, api.Distinct(requestID))
	require.Len(t, api.Requests(), 2, "the second call is recalled")
	require.Equal(t, 1, z.machines)
	_, err := c.LookupKey(t.Context(), idem.Key(given))
	require.NoError(t, err)
}

func TestANameKeepsItsRequestIdOverARestart(t *testing.T) {
	z, api := start(t)
	path := journal(t)
	run := func(attempts int) (*compute.Operation, idem.Result, error) {
		c := open(t, path, attempts)
		defer c.Close()
		var r idem.Result
		op, err := insert(idem.WithResult(idem.WithIntent(t.Context(), "machine-1"), &r), sdk(t, c.HTTPClient(), api.URL), "m1")
		return op, r, err
	}
	api.Lose(1)
	_, first, err := run(1)
	require.Error(t, err)
	require.Equal(t, idem.FateUnknown, first.Fate)
	op, second, err := run(6)
	require.NoError(t, err)
	require.Equal(t, "operation-1", op.Name)
	require.Equal(t, first.Key, second.Key)
	_, third, err := run(6)
	require.NoError(t, err)
	require.True(t, third.Recalled)
	require.Len(t, api.Requests(), 2)
	require.Equal(t, 1, z.machines)
}

func TestTheSDKDoesNotRetrySoAttemptsAreTheClients(t *testing.T) {
	attempts := func(hc *http.Client, lose, busy int) (int, error) {
		z, api := start(t)
		api.Lose(lose)
		z.busy = busy
		_, err := insert(t.Context(), sdk(t, hc, api.URL), "m")
		return len(api.Requests()), err
	}
	for name, f := range map[string]struct{ lose, busy int }{"the answer is lost": {lose: 100}, "503": {busy: 100}} {
		t.Run(name, func(t *testing.T) {
			n, err := attempts(&http.Client{}, f.lose, f.busy)
			require.Error(t, err)
			require.Equal(t, 1, n)
			n, err = attempts(open(t, journal(t), 3).HTTPClient(), f.lose, f.busy)
			require.Error(t, err)
			require.Equal(t, 3, n)
		})
	}
	n, err := attempts(open(t, journal(t), 3).HTTPClient(), 0, 2)
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

func TestARefusalIsTheSDKsErrorAndNotDone(t *testing.T) {
	_, api := start(t)
	var r idem.Result
	c := open(t, journal(t), 6)
	_, err := sdk(t, c.HTTPClient(), api.URL).Instances.Insert("p", "z", &compute.Instance{}).
		RequestId(uuid.Nil.String()).Context(idem.WithResult(t.Context(), &r)).Do()
	var refused *googleapi.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 400, refused.Code)
	require.Equal(t, idem.FateNotDone, r.Fate)
}
