// Package azure_test drives azcore pipelines and azblob over Client.HTTPClient, against
// stubs.
//
// What works. With dialect.Azure a POST carries one Repeatability-Request-ID and one
// Repeatability-First-Sent over all attempts. An answer of any status is the SDK's
// *azcore.ResponseError, whose RawResponse has the fate; what isn't known is the
// *idem.Error in a *url.Error. A blob is a PUT without a key, which is sent again within
// one call.
//
// What to mind. After a restart such a PUT is not sent again (ErrUnkeyed) unless it has a
// condition: give IfNoneMatch ETagAny and let BlobAlreadyExists be AlreadyDone.
// The answer is gone, so that Done comes as an error. A shared key's signature covers
// X-Ms-Date: name it in SignedWith, or the rerun's signature goes out with the old date.
// A large blob is many requests, which need an Options.Name that tells them apart. The
// SDK's 3 retries are on unless MaxRetries is negative.
package azure_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/interop/internal/wire"
	"github.com/idem-go/idem/mockserver"
)

// over are the options of an SDK that sends through it, with so many retries and no waits.
func over(via policy.Transporter, retries int32) policy.ClientOptions {
	if retries == 0 {
		retries = -1 // zero means 3
	}
	return policy.ClientOptions{
		Transport: via, InsecureAllowCredentialWithHTTP: true,
		Retry: policy.RetryOptions{MaxRetries: retries, RetryDelay: time.Microsecond},
	}
}

func start(t *testing.T) *mockserver.Server {
	return mockserver.Start(t, &mockserver.Config{Profile: mockserver.AzureRepeatable()})
}

func open(t *testing.T, path string) *idem.Client {
	return ours.Open(t, path, 3, idem.Options{Dialect: dialect.Azure()})
}

// post is what a generated client does.
func post(ctx context.Context, opts policy.ClientOptions, url string) error {
	req, err := runtime.NewRequest(ctx, http.MethodPost, url)
	if err != nil {
		return err
	}
	body := streaming.NopCloser(strings.NewReader(`{"id":"7"}`))
	if err := req.SetBody(body, "application/json"); err != nil {
		return err
	}
	resp, err := runtime.NewPipeline("interop", "v1", runtime.PipelineOptions{}, &opts).Do(req)
	if err == nil && !runtime.HasStatusCode(resp, http.StatusCreated) {
		err = runtime.NewResponseError(resp)
	}
	return err
}

func TestARepeatableRequestHasOneIDAndOneTimeOfFirstSendOverARestart(t *testing.T) {
	api, path := start(t), ours.Journal(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 4})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	first := open(t, path)
	err := post(ctx, over(first.HTTPClient(), 0), api.URL)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.NoError(t, first.Close())

	require.NoError(t, post(ctx, over(open(t, path).HTTPClient(), 0), api.URL))
	require.Equal(t, idem.FateDone, r.Fate)
	require.Len(t, api.Requests(), 5)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.Equal(t, 1, api.Effects("7"))
	const firstSent = "Repeatability-First-Sent"
	for _, seen := range api.Requests() {
		require.Equal(t, api.Requests()[0].Header.Get(firstSent), seen.Header.Get(firstSent))
	}
}

func TestAResponseErrorHoldsNoErrorOfTheLibrarysButItsResponseHasTheFate(t *testing.T) {
	for name, tc := range map[string]struct {
		fault mockserver.Fault
		fate  idem.Fate
	}{
		"refused":    {mockserver.Fault{Kind: mockserver.FaultFail, Status: 422}, idem.FateNotDone},
		"stayed 503": {ours.Busy(""), idem.FateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			api := start(t)
			api.Script(tc.fault)
			var r idem.Result
			via := open(t, ours.Journal(t)).HTTPClient()
			err := post(idem.WithResult(t.Context(), &r), over(via, 0), api.URL)
			var failed *azcore.ResponseError
			require.ErrorAs(t, err, &failed)
			var e *idem.Error
			require.False(t, errors.As(err, &e))
			require.Equal(t, tc.fate, idem.FateOf(failed.RawResponse, nil))
			require.Equal(t, tc.fate, r.Fate)
		})
	}
}

func TestAttemptsMultiplyUnderANameAndEndAtTheDoubtWithoutOne(t *testing.T) {
	for answer, fault := range map[string]mockserver.Fault{"lost": ours.Lost(), "503": ours.Busy("")} {
		t.Run(answer, func(t *testing.T) {
			attempts := func(ctx context.Context, via *http.Client, retries int32) int {
				api := start(t)
				api.Script(fault)
				require.Error(t, post(ctx, over(via, retries), api.URL))
				require.LessOrEqual(t, len(api.Keys("7")), 1)
				return len(api.Requests())
			}
			under := func() *http.Client { return open(t, ours.Journal(t)).HTTPClient() }
			named := idem.WithIntent(t.Context(), "order-7")
			require.Equal(t, 4, attempts(t.Context(), &http.Client{}, 3), "the SDK alone")
			require.Equal(t, 12, attempts(named, under(), 3))
			require.Equal(t, 3, attempts(named, under(), 0))
			require.Equal(t, 3, attempts(t.Context(), under(), 3))
		})
	}
}

// container is a stub of Blob Storage that keeps names alone.
type container struct {
	held    map[string]bool
	written int
}

func (c *container) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.held[r.URL.Path] && r.Header.Get("If-None-Match") == "*" {
		w.Header().Set("X-Ms-Error-Code", string(bloberror.BlobAlreadyExists))
		w.WriteHeader(http.StatusConflict)
		return
	}
	c.held[r.URL.Path] = true
	c.written++
	w.WriteHeader(http.StatusCreated)
}

// blobs is the dialect of a container whose blobs are written once, each by one intent.
func blobs() idem.Dialect {
	d := dialect.None()
	d.SignedWith = []string{"X-Ms-Date"} // by the account's shared key
	d.AlreadyDone = []idem.Match{{Status: 409, Header: "X-Ms-Error-Code", Value: string(bloberror.BlobAlreadyExists)}}
	return d
}

// upload writes a blob, once only if it isn't there.
func upload(ctx context.Context, t *testing.T, via policy.Transporter, url string, once bool) error {
	cred, err := azblob.NewSharedKeyCredential("account", base64.StdEncoding.EncodeToString([]byte("secret")))
	require.NoError(t, err)
	opts := &azblob.ClientOptions{ClientOptions: over(via, 0)}
	sc, err := azblob.NewClientWithSharedKeyCredential(url, cred, opts)
	require.NoError(t, err)
	var how azblob.UploadBufferOptions
	if once {
		absent := &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}
		how.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: absent}
	}
	_, err = sc.UploadBuffer(ctx, "invoices", "7.pdf", []byte("%PDF"), &how)
	return err
}

func TestABlobWhoseAnswerIsLostIsSentAgainWithinTheCall(t *testing.T) {
	c := &container{held: map[string]bool{}}
	api := wire.Start(t, c)
	api.Lose(2)
	var r idem.Result
	client := ours.Open(t, ours.Journal(t), 3, idem.Options{Dialect: dialect.None()})
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "invoice-7"), &r)
	require.NoError(t, upload(ctx, t, client.HTTPClient(), api.URL, false))
	require.Equal(t, idem.FateDone, r.Fate)
	require.Equal(t, 3, r.Attempts)
	require.Len(t, api.Distinct(wire.Body), 1)
	require.Len(t, api.Distinct(wire.Header("Authorization")), 1)
}

func TestAfterARestartABlobIsSentAgainIfItHasACondition(t *testing.T) {
	for name, tc := range map[string]struct {
		once bool
		want error
		fate idem.Fate
		sent int
	}{
		"overwrites":         {false, idem.ErrUnkeyed, idem.FateUnknown, 1},
		"IfNoneMatch is any": {true, idem.ErrSettled, idem.FateDone, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c, path := &container{held: map[string]bool{}}, ours.Journal(t)
			api := wire.Start(t, c)
			var r idem.Result
			run := func() error {
				client := ours.Open(t, path, 1, idem.Options{Dialect: blobs()})
				defer client.Close()
				ctx := idem.WithResult(idem.WithIntent(t.Context(), "invoice-7"), &r)
				return upload(ctx, t, client.HTTPClient(), api.URL, tc.once)
			}
			api.Lose(1)
			require.Error(t, run())
			require.ErrorIs(t, run(), tc.want)
			require.Equal(t, tc.fate, r.Fate)
			require.Len(t, api.Requests(), tc.sent)
			require.Equal(t, 1, c.written)
		})
	}
}
