// Package twilio_test drives twilio-go over Client.HTTPClient, against a stub.
//
// What works. What isn't known is the *idem.Error, wrapped in a *url.Error, and the SDK
// retries nothing.
//
// What to mind. No method takes a context, so there is neither WithIntent nor WithResult:
// Options.Name makes the name out of the request, and where the SDK read a refusal (a
// *TwilioRestError, in which errors.As finds nothing) Lookup of that name has the fate. A
// message has no field for a name of one's own; what makes it the same, such as recipient
// and text, has to. Twilio documents no key for messages: dialect.None sends once.
package twilio_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twilio/twilio-go"
	"github.com/twilio/twilio-go/client"
	twilioApi "github.com/twilio/twilio-go/rest/api/v2010"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

// start is a stub that counts messages by their recipient.
func start(t *testing.T) *mockserver.Server {
	return mockserver.Start(t, &mockserver.Config{
		Value: func(_ *http.Request, body []byte) string {
			form, _ := url.ParseQuery(string(body))
			return form.Get("To")
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte(`{"sid":"SM1","status":"queued"}`))
		}),
	})
}

// to sends what the SDK addresses to api.twilio.com to the stub.
type to struct{ host string }

func (s to) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", s.host
	return http.DefaultTransport.RoundTrip(r)
}

// name is what a message is called: a welcome to whom it goes to.
func name(r *http.Request) string {
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	b, _ := io.ReadAll(body)
	form, _ := url.ParseQuery(string(b))
	return "welcome-" + form.Get("To")
}

func open(t *testing.T, path string, api *mockserver.Server, d idem.Dialect) *idem.Client {
	return ours.Open(t, path, 3, idem.Options{Base: to{strings.TrimPrefix(api.URL, "http://")}, Dialect: d, Name: name})
}

func send(c *idem.Client, text string) (*twilioApi.ApiV2010Message, error) {
	base := &client.Client{Credentials: client.NewCredentials("AC123", "secret"), HTTPClient: c.HTTPClient()}
	base.SetAccountSid("AC123")
	sc := twilio.NewRestClientWithParams(twilio.ClientParams{Client: base})
	params := &twilioApi.CreateMessageParams{}
	params.SetTo("+15550100").SetFrom("+15550199").SetBody(text)
	return sc.Api.CreateMessage(params)
}

func TestANameMadeOutOfTheRequestKeepsItsKeyOverARestart(t *testing.T) {
	api, path := start(t), ours.Journal(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 4})
	first := open(t, path, api, idem.Dialect{})
	_, err := send(first, "hello")
	var outer *url.Error
	require.ErrorAs(t, err, &outer)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.Equal(t, "welcome-+15550100", e.Intent)
	require.NoError(t, first.Close())

	second := open(t, path, api, idem.Dialect{})
	for range 2 {
		msg, err := send(second, "hello")
		require.NoError(t, err)
		require.Equal(t, "SM1", *msg.Sid)
	}
	require.Len(t, api.Requests(), 5, "the last call was recalled")
	require.Equal(t, []string{string(e.Key)}, api.Keys("+15550100"))
	require.Len(t, api.Bodies("+15550100"), 1)
	require.Equal(t, 1, api.Effects("+15550100"))
}

func TestAnotherTextUnderTheNameIsAMismatch(t *testing.T) {
	api := start(t)
	c := open(t, ours.Journal(t), api, idem.Dialect{})
	_, err := send(c, "hello")
	require.NoError(t, err)
	_, err = send(c, "good bye")
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Len(t, api.Requests(), 1)
}

func TestARefusalIsTheSDKsErrorAndItsFateIsFoundUnderTheName(t *testing.T) {
	api := start(t)
	api.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 400, Body: `{"code":21211,"status":400}`})
	c := open(t, ours.Journal(t), api, idem.Dialect{})
	_, err := send(c, "hello")
	var refused *client.TwilioRestError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 21211, refused.Code)
	var e *idem.Error
	require.False(t, errors.As(err, &e))
	entry, err := c.Lookup(t.Context(), "welcome-+15550100")
	require.NoError(t, err)
	require.Equal(t, idem.FateNotDone, entry.Fate)
}

func TestWithoutKeysALostAnswerIsUnknownAfterOneAttempt(t *testing.T) {
	api := start(t)
	api.Script(ours.Lost())
	c := open(t, ours.Journal(t), api, dialect.None())
	for range 2 {
		_, err := send(c, "hello")
		require.ErrorIs(t, err, idem.ErrUnkeyed)
		require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
	}
	require.Len(t, api.Requests(), 1)
	require.Empty(t, api.Requests()[0].Key)
}

func TestTheSDKRetriesNothingSoAttemptsAreTheClients(t *testing.T) {
	api := start(t)
	api.Script(ours.Busy(`{"code":20503,"status":503}`))
	_, err := send(open(t, ours.Journal(t), api, idem.Dialect{}), "hello")
	var failed *client.TwilioRestError
	require.ErrorAs(t, err, &failed)
	require.Len(t, api.Requests(), 3)
	require.Len(t, api.Keys("+15550100"), 1)
}
