// Package anthropic_test drives anthropic-sdk-go over Client.HTTPClient, against a stub.
//
// What works. The SDK sends no key of its own. What isn't known is the *idem.Error itself,
// wrapped in a *url.Error; the SDK repeats it, which a name makes one intent.
//
// What to mind. A status of 4xx or 5xx is an *anthropic.Error, in which errors.As finds no
// *idem.Error: WithResult has the fate, and so has FateOf of the error's Response. Where a
// context ends, the caller's or that of WithRequestTimeout, the SDK returns its error
// alone. Its 2 retries are on unless WithMaxRetries(0), and multiply under a name. No page
// promises that Anthropic takes keys: dialect.None sends once and leaves a lost answer
// Unknown.
package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

// start is a stub that counts messages by their user.
func start(t *testing.T) *mockserver.Server {
	return mockserver.Start(t, &mockserver.Config{
		Value: func(_ *http.Request, body []byte) string {
			var in struct {
				Metadata struct {
					User string `json:"user_id"`
				}
			}
			json.Unmarshal(body, &in)
			return in.Metadata.User
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"m1","type":"message","role":"assistant","content":[{"type":"text","text":"hello"}]}`)
		}),
	})
}

func sdk(hc *http.Client, base string, opts ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithBaseURL(base), option.WithAPIKey("sk-123"), option.WithHTTPClient(hc), option.WithMaxRetries(0),
	}, opts...)...)
}

func ask(ctx context.Context, sc anthropic.Client) (*anthropic.Message, error) {
	return sc.Messages.New(ctx, anthropic.MessageNewParams{
		Model: "claude", MaxTokens: 16, Metadata: anthropic.MetadataParam{UserID: anthropic.String("7")},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
}

func TestALostAnswerIsFetchedUnderTheSameKeyWithTheSameBody(t *testing.T) {
	api := start(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	var r idem.Result
	answer, err := ask(idem.WithResult(t.Context(), &r), sdk(ours.Client(t, 3).HTTPClient(), api.URL))
	require.NoError(t, err)
	require.Equal(t, "hello", answer.Content[0].Text)
	require.Equal(t, idem.FateDone, r.Fate)
	require.Equal(t, 2, r.Attempts)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Len(t, api.Bodies("7"), 1)
	require.Equal(t, 1, api.Effects("7"))
}

func TestTheSDKSendsNoKeyByItself(t *testing.T) {
	api := start(t)
	_, err := ask(t.Context(), sdk(&http.Client{}, api.URL))
	require.NoError(t, err)
	require.Empty(t, api.Requests()[0].Key)
}

func TestWhatIsNotKnownIsTheLibrarysErrorInAURLError(t *testing.T) {
	api := start(t)
	api.Script(ours.Lost())
	_, err := ask(t.Context(), sdk(ours.Client(t, 3).HTTPClient(), api.URL))
	var outer *url.Error
	require.ErrorAs(t, err, &outer)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.Equal(t, 3, e.Attempts)
}

func TestAStatusErrorHoldsNoErrorOfTheLibrarysButItsResponseHasTheFate(t *testing.T) {
	refused := mockserver.Fault{Kind: mockserver.FaultFail, Status: 422, Body: `{"error":{}}`}
	for name, tc := range map[string]struct {
		fault  mockserver.Fault
		status int
		fate   idem.Fate
	}{
		"refused":    {refused, 422, idem.FateNotDone},
		"stayed 503": {ours.Busy(`{"error":{"type":"overloaded_error"}}`), 503, idem.FateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			api := start(t)
			api.Script(tc.fault)
			var r idem.Result
			_, err := ask(idem.WithResult(t.Context(), &r), sdk(ours.Client(t, 3).HTTPClient(), api.URL))
			var failed *anthropic.Error
			require.ErrorAs(t, err, &failed)
			require.Equal(t, tc.status, failed.StatusCode)
			var e *idem.Error
			require.False(t, errors.As(err, &e))
			require.Equal(t, tc.fate, r.Fate)
			require.Equal(t, tc.fate, idem.FateOf(failed.Response, nil))
		})
	}
}

func TestWhereAContextEndsTheSDKReturnsItsErrorAloneAndTheResultHasTheFate(t *testing.T) {
	for name, tc := range map[string]struct{ caller, request time.Duration }{
		"the caller's":            {100 * time.Millisecond, time.Minute},
		"that of one SDK attempt": {time.Minute, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			api := start(t)
			api.Script(mockserver.Fault{Kind: mockserver.FaultHang})
			ctx, cancel := context.WithTimeout(t.Context(), tc.caller)
			defer cancel()
			var r idem.Result
			sc := sdk(ours.Client(t, 3).HTTPClient(), api.URL, option.WithRequestTimeout(tc.request))
			_, err := ask(idem.WithResult(ctx, &r), sc)
			require.Equal(t, context.DeadlineExceeded, err)
			require.Equal(t, idem.FateUnknown, r.Fate)
			require.NotEmpty(t, r.Key)
		})
	}
}

func TestWithoutKeysALostAnswerIsUnknownAfterOneAttemptWhateverTheSDKRetries(t *testing.T) {
	t.Parallel()
	api := start(t)
	api.Script(ours.Lost())
	c := ours.Open(t, ours.Journal(t), 3, idem.Options{Dialect: dialect.None()})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "answer-7"), &r)
	_, err := ask(ctx, sdk(c.HTTPClient(), api.URL, option.WithMaxRetries(1)))
	require.ErrorIs(t, err, idem.ErrUnkeyed)
	require.Equal(t, idem.FateUnknown, r.Fate)
	require.Len(t, api.Requests(), 1)
	require.Empty(t, api.Requests()[0].Key)
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
				hc := &http.Client{}
				if !tc.alone {
					hc = ours.Client(t, 3).HTTPClient()
				}
				_, err := ask(ctx, sdk(hc, api.URL, option.WithMaxRetries(tc.retries)))
				require.Error(t, err)
				require.LessOrEqual(t, len(api.Keys("7")), 1)
				require.Len(t, api.Requests(), tc.want)
			})
		}
	}
}
