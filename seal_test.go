package idem_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
)

// The marks of what Seal covers: URL, request body, answer body, an error's text.
const (
	sealURL    = "http://sealed-host.example/sealed-path?sealed-query=1"
	sealBody   = `{"id":"order-1","iban":"sealed-body"}`
	sealAnswer = `{"receipt":"sealed-answer"}`
)

var sealMarks = []string{"sealed-host", "sealed-path", "sealed-query", "sealed-body", "sealed-answer"}

func sealOf(t *testing.T, secret string) cipher.AEAD {
	t.Helper()
	key := sha256.Sum256([]byte(secret))
	block, err := aes.NewCipher(key[:])
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return gcm
}

// sealRig is a mock and a journal that clients with several seals open in turn.
type sealRig struct {
	t    *testing.T
	srv  *mockserver.Server
	path string
}

func newSealRig(t *testing.T) *sealRig {
	r := &sealRig{t: t, path: t.TempDir() + "/journal"}
	r.srv = mockserver.New(&mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(sealAnswer))
	})})
	return r
}

// with opens a client for the time of use.
func (r *sealRig) with(seal cipher.AEAD, unseal []cipher.AEAD, use func(*idem.Client)) {
	r.t.Helper()
	c, err := idem.Open(r.path, &idem.Options{
		Base: r.srv.Transport(), Seal: seal, Unseal: unseal, Retry: idem.RetryPolicy{MaxAttempts: 2},
	})
	require.NoError(r.t, err)
	use(c)
	require.NoError(r.t, c.Close())
}

func (r *sealRig) request(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sealURL, strings.NewReader(sealBody))
	require.NoError(r.t, err)
	return req
}

func (r *sealRig) named(name string) *http.Request {
	return r.request(idem.WithIntent(context.Background(), name))
}

// leave leaves four entries: settled, Pending, abandoned, enqueued.
func (r *sealRig) leave(c *idem.Client) {
	r.t.Helper()
	_, err := c.Do(r.named("settled"))
	require.NoError(r.t, err)
	r.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
	_, err = c.Do(r.named("pending"))
	require.ErrorIs(r.t, err, idem.ErrExhausted)
	r.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
	_, err = c.Do(r.named("abandoned"))
	require.ErrorIs(r.t, err, idem.ErrExhausted)
	e, err := c.Lookup(context.Background(), "abandoned")
	require.NoError(r.t, err)
	require.NoError(r.t, c.Abandon(context.Background(), e.Key, "no more"))
	_, err = c.Enqueue(r.named("enqueued"))
	require.NoError(r.t, err)
}

func (r *sealRig) journal() []byte {
	b, err := os.ReadFile(r.path)
	require.NoError(r.t, err)
	return b
}

func inSealBubble(t *testing.T, f func(*sealRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newSealRig(t)
		defer r.srv.Close()
		f(r)
	})
}

func TestASealedJournalShowsNeitherURLNorBodies(t *testing.T) {
	for _, sealed := range []bool{false, true} { // the first proves that the search finds them
		inSealBubble(t, func(r *sealRig) {
			var seal cipher.AEAD
			if sealed {
				seal = sealOf(t, "one")
			}
			r.with(seal, nil, func(c *idem.Client) {
				r.leave(c)
				_, err := c.Do(r.request(context.Background())) // anonymous, gone again
				require.NoError(t, err)
			})
			journal := r.journal()
			for _, mark := range sealMarks {
				require.Equal(t, !sealed, bytes.Contains(journal, []byte(mark)), "%s in the journal", mark)
			}
			sum := sha256.Sum256([]byte(sealBody))
			require.NotContains(t, string(journal), string(sum[:]), "a plain hash of the body can be guessed")
		})
	}
}

func TestTheFingerprintIsSealedToo(t *testing.T) {
	inSealBubble(t, func(r *sealRig) {
		r.with(sealOf(t, "one"), nil, r.leave)
		require.NotContains(t, string(r.journal()), "Fingerprint")
		require.Contains(t, string(r.journal()), "settled", "names stay readable")
	})
}

func TestAnOlderSealIsReadAndNewWritesTakeTheNewOne(t *testing.T) {
	inSealBubble(t, func(r *sealRig) {
		one, two := sealOf(t, "one"), sealOf(t, "two")
		r.with(one, nil, r.leave)
		r.with(two, []cipher.AEAD{sealOf(t, "zero"), one}, func(c *idem.Client) {
			resp, err := c.Do(r.named("settled"))
			require.NoError(t, err)
			result, _ := idem.ResultOf(resp)
			require.True(t, result.Recalled)
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Done: 2}, report)
			_, err = c.Do(r.named("new"))
			require.NoError(t, err)
		})
		r.with(two, nil, func(c *idem.Client) { // without the older seal
			for _, name := range []string{"new", "pending", "enqueued"} {
				resp, err := c.Do(r.named(name))
				require.NoError(t, err, name)
				result, _ := idem.ResultOf(resp)
				require.True(t, result.Recalled, name)
			}
			_, err := c.Do(r.named("settled"))
			require.ErrorIs(t, err, idem.ErrSealed)
		})
	})
}

func TestAJournalInTheClearCanBeSealedFromNowOn(t *testing.T) {
	inSealBubble(t, func(r *sealRig) {
		r.with(nil, nil, r.leave)
		r.with(sealOf(t, "one"), nil, func(c *idem.Client) {
			_, err := c.Do(r.named("settled"))
			require.NoError(t, err)
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Done: 2}, report)
		})
	})
}

// With the wrong seal, or none, nothing is known, nothing is sent, nothing is lost.
func TestWithTheWrongSealNothingIsSentAndNothingIsLost(t *testing.T) {
	for _, wrong := range []string{"two", ""} {
		inSealBubble(t, func(r *sealRig) {
			r.with(sealOf(t, "one"), nil, r.leave)
			arrived := len(r.srv.Requests())
			var seal cipher.AEAD
			if wrong != "" {
				seal = sealOf(t, wrong)
			}
			r.with(seal, nil, func(c *idem.Client) { r.requireBlind(c) })
			time.Sleep(800 * 24 * time.Hour) // past Keep and the tombstones' year
			r.with(seal, nil, func(c *idem.Client) { r.requireBlind(c) })
			require.Len(t, r.srv.Requests(), arrived)

			r.with(sealOf(t, "one"), nil, func(c *idem.Client) {
				e, err := c.Lookup(context.Background(), "settled")
				require.NoError(t, err)
				require.Equal(t, idem.FateDone, e.Fate)
				e, err = c.Lookup(context.Background(), "abandoned")
				require.NoError(t, err)
				require.Equal(t, idem.StateAbandoned, e.State)
				report, err := c.Resume(context.Background(), nil)
				require.NoError(t, err)
				require.Equal(t, idem.Report{Done: 1, Unknown: 1}, report, "never sent; past its window")
			})
		})
	}
}

// requireBlind expects ErrSealed and Unknown of everything.
func (r *sealRig) requireBlind(c *idem.Client) {
	t, ctx := r.t, context.Background()
	t.Helper()
	pending := 0
	var keys []idem.Key
	for e, err := range c.Pending(ctx) {
		require.ErrorIs(t, err, idem.ErrSealed)
		require.NotEmpty(t, e.Key)
		keys = append(keys, e.Key)
		pending++
	}
	require.Equal(t, 2, pending)
	for _, name := range []string{"settled", "pending", "abandoned", "enqueued"} {
		_, err := c.Do(r.named(name))
		requireSealed(t, err)
		_, err = c.Enqueue(r.named(name))
		requireSealed(t, err)
		_, err = c.Reserve(ctx, name, []byte("x"))
		requireSealed(t, err)
		_, err = c.Lookup(ctx, name)
		require.ErrorIs(t, err, idem.ErrSealed)
		require.ErrorIs(t, c.Forget(ctx, name), idem.ErrSealed)
	}
	for _, key := range keys {
		_, err := c.Do(r.request(idem.WithKey(ctx, key)))
		requireSealed(t, err)
		_, err = c.LookupKey(ctx, key)
		require.ErrorIs(t, err, idem.ErrSealed)
		require.ErrorIs(t, c.Abandon(ctx, key, "why"), idem.ErrSealed)
		require.ErrorIs(t, c.Settle(ctx, key, idem.Finding{Fate: idem.FateNotDone}), idem.ErrSealed)
	}
	each := 0
	report, err := c.Resume(ctx, &idem.ResumeOptions{Each: func(e idem.Entry, err error) {
		require.ErrorIs(t, err, idem.ErrSealed)
		require.NotEmpty(t, e.Key)
		each++
	}})
	require.NoError(t, err)
	require.Equal(t, idem.Report{Unknown: 2}, report)
	require.Equal(t, 2, each)
	run, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	require.NoError(t, c.Run(run))
}

func requireSealed(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, idem.ErrSealed)
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
}

// An entry whose head was written under the new seal still has its request under
// the old one.
func TestAnEntryWhoseRequestCannotBeUnsealedIsNotSent(t *testing.T) {
	inSealBubble(t, func(r *sealRig) {
		one, two := sealOf(t, "one"), sealOf(t, "two")
		r.with(one, nil, r.leave)
		r.srv.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: -1})
		r.with(two, []cipher.AEAD{one}, func(c *idem.Client) { // rewrites the heads
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Unknown: 2}, report)
		})
		r.srv.Heal()
		arrived := len(r.srv.Requests())
		r.with(two, nil, func(c *idem.Client) {
			_, err := c.Do(r.named("pending"))
			requireSealed(t, err)
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Unknown: 2}, report)
			require.Len(t, r.srv.Requests(), arrived)
		})
		r.with(two, []cipher.AEAD{one}, func(c *idem.Client) {
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Done: 2}, report)
		})
	})
}

func TestSealedBytesMovedToAnotherEntryAreRefused(t *testing.T) {
	inSealBubble(t, func(r *sealRig) {
		one := sealOf(t, "one")
		r.with(one, nil, r.leave)
		ks, err := idem.OpenKeystore(r.path, nil)
		require.NoError(t, err)
		var open []keystore.Record
		for rec, err := range ks.Scan(context.Background(), keystore.Query{Lane: keystore.LaneOpen}) {
			require.NoError(t, err)
			full, err := ks.Read(context.Background(), keystore.Ref{Scope: rec.Scope, Key: rec.Key, Bodies: true})
			require.NoError(t, err)
			open = append(open, full...)
		}
		require.Len(t, open, 2)
		moved := open[0]
		moved.Request = open[1].Request
		require.NoError(t, ks.Commit(context.Background(), keystore.Change{Op: keystore.OpReplace, Record: moved}))
		require.NoError(t, ks.Close())

		arrived := len(r.srv.Requests())
		r.with(one, nil, func(c *idem.Client) {
			report, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
			require.Equal(t, idem.Report{Done: 1, Unknown: 1}, report)
		})
		require.Len(t, r.srv.Requests(), arrived+1)
	})
}
