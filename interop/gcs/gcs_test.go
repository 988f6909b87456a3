// Package gcs_test drives cloud.google.com/go/storage (JSON) over Client.HTTPClient,
// against a stub.
//
// What works. A small object is one POST, and what isn't known of it is the *idem.Error in
// a *url.Error; WithResult hears of it from the context of NewWriter. With a dialect that
// takes the SDK's X-Goog-Gcs-Idempotency-Token for the key, under Conditions DoesNotExist,
// a lost answer is asked for again, and 412 says that the object is there: Done, as an
// error, for the answer that tells of the object is gone. It says so also of an object that
// somebody else wrote, so the object's name must be the intent's.
//
// What to mind. The multipart body has a boundary drawn by lot: a name needs
// WithStoredPayload. With dialect.None it is sent once; a condition in the query is none to
// the library. A refusal is a *googleapi.Error without a fate or an answer: ask WithResult.
// Objects above the Writer's ChunkSize are many requests: Options.Skip them, or give
// Options.Name. Under a condition the SDK repeats a 503 until its context ends, whatever
// WithMaxAttempts says: set RetryNever.
package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/interop/internal/wire"
)

const token = "X-Goog-Gcs-Idempotency-Token"

// bucket is a stub that keeps names alone.
type bucket struct {
	held    map[string]bool
	written int
	refuse  bool
	busy    int // 503s to give first
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case b.busy > 0:
		b.busy--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case b.refuse:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":{"code":403,"message":"no access"}}`)
		return
	case b.held[q.Get("name")] && q.Get("ifGenerationMatch") == "0":
		w.WriteHeader(http.StatusPreconditionFailed)
		fmt.Fprint(w, `{"error":{"code":412,"message":"conditionNotMet"}}`)
		return
	}
	b.held[q.Get("name")] = true
	b.written++
	fmt.Fprintf(w, `{"bucket":"invoices","name":%q,"generation":"1"}`, q.Get("name"))
}

func start(t *testing.T) (*bucket, *wire.Proxy) {
	b := &bucket{held: map[string]bool{}}
	return b, wire.Start(t, b)
}

// once is the dialect of objects that are written once, each by one intent: the token
// names the call, the condition keeps a late resend out.
func once() idem.Dialect {
	return idem.Dialect{
		Name: "gcs", Field: token, Paths: []string{"/upload/**"},
		AlreadyDone: []idem.Match{{Status: http.StatusPreconditionFailed}},
	}
}

func open(t *testing.T, path string, attempts int, d idem.Dialect) *idem.Client {
	return ours.Open(t, path, attempts, idem.Options{Dialect: d})
}

// sdk has retries of its own, without waits.
func sdk(t *testing.T, hc *http.Client, base string, retries storage.RetryPolicy) *storage.Client {
	sc, err := storage.NewClient(t.Context(), option.WithHTTPClient(hc), option.WithEndpoint(base+"/storage/v1/"))
	require.NoError(t, err)
	t.Cleanup(func() { sc.Close() })
	sc.SetRetry(storage.WithPolicy(retries), storage.WithMaxAttempts(2), // which an upload doesn't heed
		storage.WithBackoff(gax.Backoff{Initial: time.Millisecond, Max: time.Millisecond}))
	return sc
}

func upload(ctx context.Context, sc *storage.Client) error {
	w := sc.Bucket("invoices").Object("7.pdf").If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
	if _, err := io.WriteString(w, "%PDF"); err != nil {
		return err
	}
	return w.Close()
}

func TestALostAnswerOfAnObjectThatMustNotExistIsDoneOnceItDoes(t *testing.T) {
	b, api := start(t)
	api.Lose(1)
	var r idem.Result
	hc := open(t, ours.Journal(t), 3, once()).HTTPClient()
	err := upload(idem.WithResult(t.Context(), &r), sdk(t, hc, api.URL, storage.RetryNever))
	require.ErrorIs(t, err, idem.ErrSettled, "it is known that it happened, and no answer tells of it")
	require.Equal(t, idem.FateDone, r.Fate)
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, []string{string(r.Key)}, api.Distinct(wire.Header(token)))
	require.Len(t, api.Distinct(wire.Body), 1)
	require.Equal(t, 1, b.written)
}

func TestWithoutKeysALostAnswerIsUnknownAfterOneAttempt(t *testing.T) {
	b, api := start(t)
	api.Lose(1)
	hc := open(t, ours.Journal(t), 3, dialect.None()).HTTPClient()
	err := upload(t.Context(), sdk(t, hc, api.URL, storage.RetryNever))
	var outer *url.Error
	require.ErrorAs(t, err, &outer)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.ErrorIs(t, err, idem.ErrUnkeyed)
	require.Len(t, api.Requests(), 1)
	require.Equal(t, 1, b.written)
}

func TestANameIsAMismatchTheSecondTimeUnlessTheStoredPayloadIsAskedFor(t *testing.T) {
	b, api := start(t)
	path := ours.Journal(t)
	run := func(ctx context.Context) (r idem.Result, err error) {
		c := open(t, path, 1, once())
		defer c.Close()
		ctx = idem.WithResult(idem.WithIntent(ctx, "invoice-7"), &r)
		err = upload(ctx, sdk(t, c.HTTPClient(), api.URL, storage.RetryNever))
		return r, err
	}
	api.Lose(1)
	first, err := run(t.Context())
	require.Error(t, err)
	require.Equal(t, idem.FateUnknown, first.Fate)
	_, err = run(t.Context())
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Len(t, api.Requests(), 1)

	second, err := run(idem.WithStoredPayload(t.Context()))
	require.ErrorIs(t, err, idem.ErrSettled)
	require.Equal(t, idem.FateDone, second.Fate)
	require.Equal(t, []string{string(first.Key)}, api.Distinct(wire.Header(token)))
	require.Len(t, api.Distinct(wire.Body), 1)
	require.Equal(t, 1, b.written)
}

func TestARefusalIsAGoogleErrorWithoutAFateWhichTheResultHas(t *testing.T) {
	b, api := start(t)
	b.refuse = true
	var r idem.Result
	hc := open(t, ours.Journal(t), 3, once()).HTTPClient()
	err := upload(idem.WithResult(t.Context(), &r), sdk(t, hc, api.URL, storage.RetryNever))
	var refused *googleapi.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 403, refused.Code)
	var e *idem.Error
	require.False(t, errors.As(err, &e))
	require.Equal(t, idem.FateNotDone, r.Fate)
	require.Len(t, api.Requests(), 1)
}

func TestTheSDKRepeatsA503WithoutAnEndAndItIsOneIntent(t *testing.T) {
	attempts := func(ctx context.Context, hc *http.Client) int {
		b, api := start(t)
		b.busy = 7
		require.NoError(t, upload(ctx, sdk(t, hc, api.URL, storage.RetryIdempotent)))
		require.Len(t, api.Distinct(wire.Header(token)), 1)
		require.Equal(t, 1, b.written)
		return len(api.Requests())
	}
	under := func() *http.Client { return open(t, ours.Journal(t), 3, once()).HTTPClient() }
	named := idem.WithStoredPayload(idem.WithIntent(t.Context(), "invoice-7"))
	require.Equal(t, 8, attempts(t.Context(), &http.Client{}), "the SDK alone")
	require.Equal(t, 8, attempts(t.Context(), under()), "under the SDK's token")
	require.Equal(t, 8, attempts(named, under()), "under ours")

	b, api := start(t)
	b.busy = 7
	require.Error(t, upload(t.Context(), sdk(t, under(), api.URL, storage.RetryNever)))
	require.Len(t, api.Requests(), 3)
}

func TestTheSDKRepeatsNoLostAnswerSoAttemptsAreTheClients(t *testing.T) {
	attempts := func(hc *http.Client) int {
		_, api := start(t)
		api.Lose(100)
		require.Error(t, upload(t.Context(), sdk(t, hc, api.URL, storage.RetryIdempotent)))
		return len(api.Requests())
	}
	require.Equal(t, 1, attempts(&http.Client{}))
	require.Equal(t, 3, attempts(open(t, ours.Journal(t), 3, once()).HTTPClient()))
}

func TestAnObjectThatWasThereBeforeIsTakenForOursSoItsNameMustBeTheIntents(t *testing.T) {
	b, api := start(t)
	b.held["7.pdf"] = true
	var r idem.Result
	hc := open(t, ours.Journal(t), 3, once()).HTTPClient()
	require.Error(t, upload(idem.WithResult(t.Context(), &r), sdk(t, hc, api.URL, storage.RetryNever)))
	require.Equal(t, idem.FateDone, r.Fate)
	require.Len(t, api.Requests(), 1)
}
