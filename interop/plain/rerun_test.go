package plain_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/interop/internal/wire"
)

const region = "eu-central-1"

// ok answers every request with 201.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })

// send sends what build makes under a name, by a client of its own.
func send(t *testing.T, path string, opts idem.Options, build func(*http.Request)) (r idem.Result, err error) {
	c := ours.Open(t, path, 1, opts)
	defer c.Close()
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://nowhere.test", strings.NewReader(order))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	build(req)
	resp, err := c.HTTPClient().Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return r, err
}

func at(t *testing.T, base string) func(*http.Request) {
	u, err := url.Parse(base)
	require.NoError(t, err)
	return func(r *http.Request) { r.URL, r.Host = u, u.Host }
}

// Net/http follows; a GET that answers 200 is no POST, and credentials stay at home.
func TestARedirectElsewhereIsNoSuccessThoughNetHTTPFollowsIt(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			elsewhere := wire.Start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			api := wire.Start(t, http.RedirectHandler(elsewhere.URL, code))
			c := ours.Open(t, ours.Journal(t), 3, idem.Options{Authorize: func(r *http.Request) error {
				r.Header.Set("Authorization", "Bearer secret")
				return nil
			}})
			var r idem.Result
			ctx, hc := idem.WithResult(t.Context(), &r), &http.Client{Transport: c.Transport()}
			resp, err := post(ctx, hc, api.URL, "application/json", order)
			require.NotEqual(t, idem.FateDone, idem.FateOf(resp, err))
			require.NotEqual(t, idem.FateDone, r.Fate)
			require.Equal(t, code, r.Status)
			var e *idem.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, code, e.Response.StatusCode)
			require.Empty(t, elsewhere.Requests())
		})
	}
}

// The SDK asked for gzip, so the answer comes as it is; the mismatch in it proves nothing.
func TestACompressedMismatchAfterALostAnswerIsNotNotDone(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, `{"error":{"type":"idempotency_error","message":"another request"}}`)
	require.NoError(t, z.Close())
	api := wire.Start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusBadRequest)
		w.Write(packed.Bytes())
	}))
	api.Lose(1)
	path, opts := ours.Journal(t), idem.Options{Dialect: dialect.Stripe()}
	zipped := func(r *http.Request) { at(t, api.URL)(r); r.Header.Set("Accept-Encoding", "gzip") }
	first, _ := send(t, path, opts, zipped)
	require.Equal(t, idem.FateUnknown, first.Fate)
	second, _ := send(t, path, opts, zipped)
	require.Equal(t, idem.FateUnknown, second.Fate)
}

// What a signature was made with comes with it.
func TestARerunSendsTodaysTimeStampWithTodaysSignature(t *testing.T) {
	api, path := wire.Start(t, ok), ours.Journal(t)
	api.Lose(1)
	for _, stamp := range []string{"1000", "2000"} {
		_, _ = send(t, path, idem.Options{}, func(r *http.Request) {
			at(t, api.URL)(r)
			r.Header.Set("X-Timestamp", stamp)
			r.Header.Set("X-Signature", "signature-of-"+stamp)
		})
	}
	require.Equal(t, []string{"1000", "2000"}, api.Distinct(wire.Header("X-Timestamp")))
	require.Equal(t, []string{"signature-of-1000", "signature-of-2000"}, api.Distinct(wire.Header("X-Signature")))
}

// A presigned URL is made anew for every run; its set goes together.
func TestAPresignedURLMadeAnewIsTheSameRequestAndGoesOutWhole(t *testing.T) {
	api, path := wire.Start(t, ok), ours.Journal(t)
	api.Lose(1)
	var signed []string
	for _, when := range []time.Time{time.Unix(1000, 0), time.Unix(90000, 0)} {
		_, err := send(t, path, idem.Options{}, func(r *http.Request) {
			at(t, api.URL+"/key?X-Amz-Expires=900")(r)
			id := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret", SessionToken: "session"}
			u, _, err := v4.NewSigner().PresignHTTP(t.Context(), id, r, "UNSIGNED-PAYLOAD", "s3", region, when)
			require.NoError(t, err)
			at(t, u)(r)
			signed = append(signed, r.URL.RequestURI())
		})
		require.NotErrorIs(t, err, idem.ErrMismatch)
	}
	require.Equal(t, signed, api.Distinct(func(r wire.Request) string { return r.URL }))
}

// Today's request decides which credentials it brings.
func TestACredentialThatTheRerunLacksOrHasElsewhereKeepsNothingBack(t *testing.T) {
	for name, headers := range map[string][2]http.Header{
		"a balancer's cookie is gone": {{"Cookie": {"lb=node-1"}}, {}},
		"another header":              {{"X-Api-Key": {"secret"}}, {"Authorization": {"Bearer secret"}}},
	} {
		t.Run(name, func(t *testing.T) {
			api, path := wire.Start(t, ok), ours.Journal(t)
			api.Lose(1)
			var r idem.Result
			var err error
			for _, h := range headers {
				r, err = send(t, path, idem.Options{}, func(r *http.Request) {
					at(t, api.URL)(r)
					for k, v := range h {
						r.Header[k] = v
					}
				})
			}
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, r.Fate)
			require.Len(t, api.Requests(), 2)
		})
	}
}
