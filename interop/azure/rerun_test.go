package azure_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/interop/internal/wire"
)

// signed remembers with which date the SDK made each signature.
type signed struct {
	next policy.Transporter
	date map[string]string
}

func (s *signed) Do(r *http.Request) (*http.Response, error) {
	s.date[r.Header.Get("Authorization")] = r.Header.Get("X-Ms-Date")
	return s.next.Do(r)
}

// inside is the stub without a socket: it loses the first answer.
type inside struct {
	stub http.Handler
	seen []http.Header
}

func (b *inside) RoundTrip(r *http.Request) (*http.Response, error) {
	b.seen = append(b.seen, r.Header.Clone())
	w := httptest.NewRecorder()
	b.stub.ServeHTTP(w, r)
	if len(b.seen) == 1 {
		return nil, http.ErrHandlerTimeout
	}
	return w.Result(), nil
}

// SharedKey covers X-Ms-Date, so a rerun's signature must go out with the rerun's date.
func TestAfterARestartABlobGoesOutUnderTodaysSignatureWithTodaysDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, path := &inside{stub: &container{held: map[string]bool{}}}, ours.Journal(t)
		signer := &signed{date: map[string]string{}}
		for range 2 {
			client := ours.Open(t, path, 1, idem.Options{Dialect: blobs(), Base: api})
			signer.next = client.HTTPClient()
			_ = upload(idem.WithIntent(t.Context(), "invoice-7"), t, signer, "http://account.test", true)
			require.NoError(t, client.Close())
			time.Sleep(time.Hour)
		}
		require.Len(t, api.seen, 2)
		for _, h := range api.seen {
			require.Equal(t, signer.date[h.Get("Authorization")], h.Get("X-Ms-Date"))
		}
	})
}

func TestABlobThatWasThereBeforeIsNotTakenForOurs(t *testing.T) {
	c := &container{held: map[string]bool{"/invoices/7.pdf": true}}
	api := wire.Start(t, c)
	var r idem.Result
	client := ours.Open(t, ours.Journal(t), 3, idem.Options{Dialect: blobs()})
	err := upload(idem.WithResult(t.Context(), &r), t, client.HTTPClient(), api.URL, true)
	require.True(t, bloberror.HasCode(err, bloberror.BlobAlreadyExists), err)
	require.Equal(t, idem.FateNotDone, r.Fate)
	require.Len(t, api.Requests(), 1)
}
