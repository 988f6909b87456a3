// Package openai_test drives openai-go over Client.HTTPClient, against a stub.
//
// What works. The SDK sends no key of its own. What isn't known is the *idem.Error itself,
// wrapped in a *url.Error; the SDK repeats it, which a name makes one intent.
//
// What to mind. A status of 4xx or 5xx is an *openai.Error, in which errors.As finds no
// *idem.Error: WithResult has the fate, and so has FateOf of the error's Response. Where the
// caller's context ends the SDK returns the context's error alone. Its 2 retries are on
// unless WithMaxRetries(0), and multiply under a name. Uploads have a boundary drawn by
// lot: a name needs WithStoredPayload. WithUnsafeAllowHTTP goes around the client: nothing
// is an intent then (v3.99.0 no longer does so), so a local server needs TLS. No page promises that OpenAI takes keys:
// dialect.None sends once and leaves a lost answer Unknown.
package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

// stub counts completions by their safety identifier. It listens with TLS, without which
// the SDK sends no credentials.
type stub struct {
	*mockserver.Server
	tls *httptest.Server
}

func (s *stub) open(t *testing.T, opts idem.Options) *http.Client {
	opts.Base = s.tls.Client().Transport
	return ours.Open(t, ours.Journal(t), 3, opts).HTTPClient()
}

func start(t *testing.T) *stub {
	api := mockserver.Start(t, &mockserver.Config{
		Value: func(r *http.Request, body []byte) string {
			var in struct {
				User string `json:"safety_identifier"`
			}
			if json.Unmarshal(body, &in) != nil {
				return "file"
			}
			return in.User
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}]}`)
		}),
	})
	tls := httptest.NewTLSServer(api)
	t.Cleanup(tls.Close)
	return &stub{Server: api, tls: tls}
}

func (s *stub) sdk(hc *http.Client, retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL(s.tls.URL), option.WithAPIKey("sk-123"),
		option.WithHTTPClient(hc), option.WithMaxRetries(retries))
}

func ask(ctx context.Context, sc openai.Client) (*openai.ChatCompletion, error) {
	return sc.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "gpt", SafetyIdentifier: openai.String("7"),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
}

func TestALostAnswerIsFetchedUnderTheSameKeyWithTheSameBody(t *testing.T) {
	api := start(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	var r idem.Result
	answer, err := ask(idem.WithResult(t.Context(), &r), api.sdk(api.open(t, idem.Options{}), 0))
	require.NoError(t, err)
	require.Equal(t, "hello", answer.Choices[0].Message.Content)
	require.Equal(t, idem.FateDone, r.Fate)
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.Equal(t, 1, api.Effects("7"))
}

func TestTheSDKSendsNoKeyByItself(t *testing.T) {
	api := start(t)
	_, err := ask(t.Context(), api.sdk(api.tls.Client(), 0))
	require.NoError(t, err)
	require.Empty(t, api.Requests()[0].Key)
}

func TestWhatIsNotKnownIsTheLibrarysErrorInAURLError(t *testing.T) {
	api := start(t)
	api.Script(ours.Lost())
	_, err := ask(t.Context(), api.sdk(api.open(t, idem.Options{}), 0))
	var outer *url.Error
	require.ErrorAs(t, err, &outer)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.Equal(t, 3, e.Attempts)
}

func TestAStatusErrorHoldsNoErrorOfTheLibrarysButItsResponseHasTheFate(t *testing.T) {
	refused := mockserver.Fault{Kind: mockserver.FaultFail, Status: 422, Body: `{"error":{"message":"sorry"}}`}
	for name, tc := range map[string]struct {
		fault  mockserver.Fault
		status int
		fate   idem.Fate
	}{
		"refused":    {refused, 422, idem.FateNotDone},
		"stayed 503": {ours.Busy(`{"error":{"message":"sorry"}}`), 503, idem.FateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			api := start(t)
			api.Script(tc.fault)
			var r idem.Result
			_, err := ask(idem.WithResult(t.Context(), &r), api.sdk(api.open(t, idem.Options{}), 0))
			var failed *openai.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, tc.status, failed.StatusCode)
			require.Equal(t, "sorry", failed.Message)
			var e *idem.Error
			require.False(t, errors.As(err, &e))
			require.Equal(t, tc.fate, r.Fate)
			require.Equal(t, tc.fate, idem.FateOf(failed.Response, nil))
		})
	}
}

func TestWhereTheContextEndsTheSDKReturnsItsErrorAloneAndTheResultHasTheFate(t *testing.T) {
	api := start(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultHang})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var r idem.Result
	_, err := ask(idem.WithResult(ctx, &r), api.sdk(api.open(t, idem.Options{}), 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var e *idem.Error
	require.False(t, errors.As(err, &e))
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.NotEmpty(t, r.Key)
}

func TestPlainHTTPOnLoopbackGoesAroundTheClientSoThatNothingIsAnIntent(t *testing.T) {
	api := start(t)
	var r idem.Result
	sc := openai.NewClient(option.WithBaseURL(api.URL), option.WithAPIKey("sk-123"), option.WithUnsafeAllowHTTP(),
		option.WithHTTPClient(ours.Client(t, 3).HTTPClient()))
	_, err := ask(idem.WithResult(t.Context(), &r), sc)
	require.NoError(t, err)
	require.Zero(t, r)
	require.Empty(t, api.Requests()[0].Key)
}

func TestWithoutKeysALostAnswerIsUnknownAfterOneAttemptWhateverTheSDKRetries(t *testing.T) {
	t.Parallel()
	api := start(t)
	api.Script(ours.Lost())
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "answer-7"), &r)
	_, err := ask(ctx, api.sdk(api.open(t, idem.Options{Dialect: dialect.None()}), 1))
	require.ErrorIs(t, err, idem.ErrUnkeyed)
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.Len(t, api.Requests(), 1)
	require.Empty(t, api.Requests()[0].Key)
}

func TestAnUploadUnderANameIsAMismatchTheSecondTimeUnlessTheStoredPayloadIsAskedFor(t *testing.T) {
	api := start(t)
	sc := api.sdk(api.open(t, idem.Options{}), 0)
	upload := func(ctx context.Context) error {
		_, err := sc.Files.New(idem.WithIntent(ctx, "file-7"), openai.FileNewParams{
			File:    openai.File(strings.NewReader("{}"), "batch.jsonl", "application/jsonl"),
			Purpose: openai.FilePurposeBatch,
		})
		return err
	}
	require.NoError(t, upload(t.Context()))
	require.ErrorIs(t, upload(t.Context()), idem.ErrMismatch)
	require.NoError(t, upload(idem.WithStoredPayload(t.Context())))
	require.Len(t, api.Requests(), 1)
	require.Equal(t, 1, api.Effects("file"))
}

func TestAttemptsMultiplyUnderANameAndEndAtTheDoubtWithoutOne(t *testing.T) {
	for answer, fault := range map[string]mockserver.Fault{"lost": ours.Lost(), "503": ours.Busy(`{"error":{}}`)} {
		for _, tc := range []struct {
			name    string
			alone   bool
			retries int
			want    int
		}{{"", true, 2, 3}, {"answer-7", false, 2, 9}, {"", false, 2, 3}, {"answer-7", false, 0, 3}} {
			t.Run(fmt.Sprintf("%s, %+v", answer, tc), func(t *testing.T) {
				t.Parallel() // the SDK's waits can't be turned off
				api, ctx := start(t), t.Context()
				if tc.name != "" {
					ctx = idem.WithIntent(ctx, tc.name)
				}
				api.Script(fault)
				hc := api.tls.Client()
				if !tc.alone {
					hc = api.open(t, idem.Options{})
				}
				_, err := ask(ctx, api.sdk(hc, tc.retries))
				require.Error(t, err)
				require.LessOrEqual(t, len(api.Keys("7")), 1)
				require.Len(t, api.Requests(), tc.want)
			})
		}
	}
}
