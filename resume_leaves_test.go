package idem_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
)

// eachError resumes and returns what Each heard of the only entry.
func (w *resumeWorld) eachError(want idem.Report) (e idem.Entry, heard error) {
	w.Helper()
	calls := 0
	r, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Each: func(entry idem.Entry, err error) {
		calls++
		e, heard = entry, err
	}})
	require.NoError(w, err)
	require.Equal(w, want, r)
	require.Equal(w, 1, calls)
	return e, heard
}

func TestResumeLeavesAnEntryOfAnotherAccount(t *testing.T) {
	inResumeWorld(t, idem.Options{Account: "acct-1"}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		key := w.entry("a").Key
		w.restart(func(o *idem.Options) { o.Account = "acct-2" })
		_, err := w.eachError(idem.Report{Skipped: 1})
		require.ErrorIs(t, err, idem.ErrAccountChanged)
		require.Equal(t, 1, w.sent())
		e, err := w.c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State)

		w.restart(func(o *idem.Options) { o.Account = "acct-1" })
		require.Equal(t, idem.Report{Done: 1}, w.resume())
	})
}

func TestResumeLeavesAnEntryOfAnotherDialect(t *testing.T) {
	inResumeWorld(t, idem.Options{Dialect: idem.Dialect{Name: "one"}}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.restart(func(o *idem.Options) { o.Dialect.Name = "two" })
		_, err := w.eachError(idem.Report{Skipped: 1})
		require.ErrorIs(t, err, idem.ErrAccountChanged)
		require.Equal(t, 1, w.sent())
		require.Equal(t, idem.StatePending, w.entry("a").State)
	})
}

func TestRunLeavesAnEntryOfAnotherAccount(t *testing.T) {
	inResumeWorld(t, idem.Options{Account: "acct-1"}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.restart(func(o *idem.Options) { o.Account = "acct-2" })
		stop := w.run()
		time.Sleep(time.Hour)
		require.NoError(t, stop())
		require.Equal(t, 1, w.sent())
	})
}

func TestAnEntryWithoutAccountAdoptsTheFirstItMeets(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		w.restart(func(o *idem.Options) { o.Account = "acct-1" })
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, "acct-1", w.entry("a").Account)
	})
}

// A name is free in another account. An entry without an account can then not move
// into one where the name stands already.
func TestAnEntryThatCantAdoptAnAccountIsReportedAndKept(t *testing.T) {
	inResumeWorld(t, idem.Options{Account: "acct-1"}, func(t *testing.T, w *resumeWorld) {
		_, err := w.do("a")
		require.NoError(t, err)
		w.restart(func(o *idem.Options) { o.Account = "" })
		w.lose("a")
		key := w.entry("a").Key
		w.restart(func(o *idem.Options) { o.Account = "acct-1" })
		w.enqueue("b")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		heard := map[idem.Key]error{}
		r, err := w.c.Resume(ctx, &idem.ResumeOptions{Each: func(e idem.Entry, err error) { heard[e.Key] = err }})
		require.NoError(t, err, "an entry's own trouble is not an error of the pass")
		require.Equal(t, 1, r.Done, "the other entry goes on")
		require.Error(t, heard[key])
		e, err := w.c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State)
	})
}

func TestAuthorizeLearnsTheAccountOfAResumedEntry(t *testing.T) {
	var accounts resumeLog
	auth := func(r *http.Request) error {
		account, _ := idem.AccountFrom(r.Context())
		accounts.add(account)
		r.Header.Set("Authorization", "Bearer of-"+account)
		return nil
	}
	inResumeWorld(t, idem.Options{Account: "main", Authorize: auth}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset, Times: 2})
		for _, ctx := range []context.Context{
			idem.WithAccount(resumeNamed("a"), "tenant-7"),
			resumeNamed("b"),
		} {
			_, err := w.c.Do(resumeReq(ctx, "x"))
			require.Error(t, err)
			time.Sleep(time.Second)
		}
		w.restart(nil)
		r, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Concurrency: 1})
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 2}, r)
		require.Equal(t, []string{"tenant-7", "main", "tenant-7", "main"}, accounts.all())
		got := w.srv.Requests()
		require.Equal(t, "Bearer of-tenant-7", got[2].Header.Get("Authorization"))
		require.Equal(t, "Bearer of-main", got[3].Header.Get("Authorization"))
	})
}

func TestAResumedEntryWaitsForItsCredentials(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultReset})
		req := resumeReq(resumeNamed("a"), "a")
		req.Header.Set("Authorization", "Bearer secret-1")
		req.URL.RawQuery = "api_key=secret-2&page=1"
		_, err := w.c.Do(req)
		require.Error(t, err)
		first := w.entry("a").FirstSent

		e, heard := w.eachError(idem.Report{Unknown: 1})
		require.ErrorIs(t, heard, idem.ErrCredentials)
		require.Equal(t, idem.StatePending, e.State)
		require.NotEmpty(t, w.entry("a").LastError)
		require.Equal(t, first, w.entry("a").FirstSent)
		require.Equal(t, 1, w.sent())

		w.restart(func(o *idem.Options) { // one of two isn't enough
			o.Authorize = func(r *http.Request) error { r.Header.Set("Authorization", "Bearer new"); return nil }
		})
		_, heard = w.eachError(idem.Report{Unknown: 1})
		require.ErrorIs(t, heard, idem.ErrCredentials)
		require.Equal(t, 1, w.sent())

		w.restart(func(o *idem.Options) {
			o.Authorize = func(r *http.Request) error {
				r.Header.Set("Authorization", "Bearer new")
				q := r.URL.Query()
				q.Set("api_key", "new-2")
				r.URL.RawQuery = q.Encode()
				return nil
			}
		})
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		last := w.srv.Requests()[1]
		require.Equal(t, "Bearer new", last.Header.Get("Authorization"))
		require.Contains(t, last.URL, "api_key=new-2")
		require.Len(t, w.srv.Keys("a"), 1)
	})
}

func TestAFailedAuthorizeKeepsAResumedEntry(t *testing.T) {
	down := errors.New("token endpoint down")
	auth := func(*http.Request) error { return down }
	inResumeWorld(t, idem.Options{Authorize: auth}, func(t *testing.T, w *resumeWorld) {
		key := w.enqueue("a")
		_, heard := w.eachError(idem.Report{Unknown: 1})
		require.ErrorIs(t, heard, down)
		e, err := w.c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State)
		require.True(t, e.FirstSent.IsZero(), "nothing was sent")
	})
}

func resumeSeal(t testing.TB, fill byte) cipher.AEAD {
	t.Helper()
	key := make([]byte, 16)
	for i := range key {
		key[i] = fill
	}
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	seal, err := cipher.NewGCM(block)
	require.NoError(t, err)
	return seal
}

func TestAnEntrySealedWithAnotherKeyIsReportedAndKept(t *testing.T) {
	one, two := resumeSeal(t, 1), resumeSeal(t, 2)
	inResumeWorld(t, idem.Options{Seal: one}, func(t *testing.T, w *resumeWorld) {
		w.lose("a")
		key := w.entry("a").Key
		w.restart(func(o *idem.Options) { o.Seal = two })
		w.enqueue("b")
		heard := map[idem.Key]error{}
		r, err := w.c.Resume(context.Background(), &idem.ResumeOptions{Each: func(e idem.Entry, err error) { heard[e.Key] = err }})
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1, Unknown: 1}, r)
		require.ErrorIs(t, heard[key], idem.ErrSealed)

		stop := w.run() // nor does Run stop at it, or touch it
		time.Sleep(3 * time.Minute)
		require.NoError(t, stop())
		require.Equal(t, 2, w.sent())

		w.restart(func(o *idem.Options) { o.Unseal = []cipher.AEAD{one} })
		require.Equal(t, idem.Report{Done: 1}, w.resume())
		require.Equal(t, 1, w.srv.Effects("a"))
	})
}

// damagedKeystore hands out one record with a bit of its request flipped.
type damagedKeystore struct {
	idem.Keystore
	key string
}

func (d *damagedKeystore) Read(ctx context.Context, refs ...keystore.Ref) ([]keystore.Record, error) {
	list, err := d.Keystore.Read(ctx, refs...)
	for _, r := range list {
		if r.Key == d.key && len(r.Request) > 0 {
			r.Request[len(r.Request)-1] ^= 1
		}
	}
	return list, err
}

func TestAnEntryWithADamagedBodyIsReportedAndKept(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.lose("a", "b")
		key := w.entry("a").Key
		require.NoError(t, w.c.Close())
		c, err := idem.New(&damagedKeystore{w.ks, string(key)}, &w.opts)
		require.NoError(t, err)
		defer c.Close()
		heard := map[idem.Key]error{}
		r, err := c.Resume(context.Background(), &idem.ResumeOptions{Each: func(e idem.Entry, err error) { heard[e.Key] = err }})
		require.NoError(t, err)
		require.Equal(t, idem.Report{Done: 1, Unknown: 1}, r)
		require.ErrorIs(t, heard[key], idem.ErrCorrupt)
		e, err := c.LookupKey(context.Background(), key)
		require.NoError(t, err)
		require.Equal(t, idem.StatePending, e.State)
	})
}
