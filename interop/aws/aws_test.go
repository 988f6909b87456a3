// Package aws_test drives aws-sdk-go-v2, with its own retries on, against a stub of
// DynamoDB's TransactWriteItems that checks signatures.
//
// What works. A ClientRequestToken from Client.Reserve, with the SDK's own HTTP client
// and retries: the token outlives a restart. And the SDK over Client.HTTPClient with
// dialect.AWS, Field "ClientRequestToken": the token that the SDK puts into the body is
// found and journaled, and an attempt of the SDK's goes out under its own signature.
// After a restart the SDK mints another token and signs a body that is not the
// journaled one, so it takes either a token of one's own (DeriveKey) or an Authorize
// that signs; without either the fate stays Unknown. Maps are written in another order
// with every call: a name then needs WithStoredPayload.
//
// What the SDK's retries do: 4 attempts for DynamoDB, so 4 over a client of one
// attempt, 12 over one of three, always under one token. Turn one of the two off:
// MaxAttempts 1 here, or aws.NopRetryer there.
package aws_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
	"github.com/idem-go/idem/interop/internal/wire"
)

const region = "eu-west-1"

var secret = credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")

// dynamo is a stub of TransactWriteItems: it checks signatures, compares what stands
// under a token, and counts what it did.
type dynamo struct {
	mu      sync.Mutex
	held    map[string]string // token to request
	effects int
	forged  int // requests whose signature wasn't theirs
}

func (d *dynamo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if !signed(r, body) {
		d.forged++
		w.WriteHeader(400)
		io.WriteString(w, `{"__type":"com.amazon.coral.service#InvalidSignatureException","message":"The request signature we calculated does not match the signature you provided."}`)
		return
	}
	var in struct{ ClientRequestToken string }
	json.Unmarshal(body, &in)
	switch held, known := d.held[in.ClientRequestToken]; {
	case !known:
		d.held[in.ClientRequestToken] = string(body)
		d.effects++
	case held != string(body):
		w.WriteHeader(400)
		io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"}`)
		return
	}
	io.WriteString(w, `{}`)
}

// signed signs what is said to be signed once more and compares.
func signed(r *http.Request, body []byte) bool {
	auth := r.Header.Get("Authorization")
	_, names, _ := strings.Cut(auth, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	again, _ := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), nil)
	for _, name := range strings.Split(names, ";") {
		switch name {
		case "content-length":
			again.ContentLength = int64(len(body))
		case "host":
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	return err == nil && sign(again, body, at) == nil && again.Header.Get("Authorization") == auth
}

func sign(r *http.Request, body []byte, at time.Time) error {
	id, err := secret.Retrieve(r.Context())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	return v4.NewSigner().SignHTTP(r.Context(), id, r, hex.EncodeToString(sum[:]), "dynamodb", region, at)
}

// authorize signs every attempt afresh, over the bytes that are sent.
func authorize(r *http.Request) error {
	body, err := r.GetBody()
	if err != nil {
		return err
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return sign(r, b, time.Now())
}

func start(t *testing.T) (*dynamo, *wire.Proxy) {
	d := &dynamo{held: map[string]string{}}
	return d, wire.Start(t, d)
}

func journal(t *testing.T) string { return filepath.Join(t.TempDir(), "transfers.db") }

func open(t *testing.T, path string, attempts int, authorize func(*http.Request) error) *idem.Client {
	d := dialect.AWS()
	d.Field = "ClientRequestToken"
	c, err := idem.Open(path, &idem.Options{
		Scope: "dynamodb", Dialect: d, Authorize: authorize,
		Retry: idem.RetryPolicy{MaxAttempts: attempts, BaseDelay: time.Millisecond, NoBudget: true},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// sdk is DynamoDB's client with its own retries on, without their waits.
func sdk(hc aws.HTTPClient, base string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: region, Credentials: secret, BaseEndpoint: aws.String(base), HTTPClient: hc,
	}, func(o *dynamodb.Options) { o.Retryer = retry.AddWithMaxBackoffDelay(o.Retryer, time.Millisecond) })
}

func transfer(ctx context.Context, sc *dynamodb.Client, token *string, order string, opts ...func(*dynamodb.Options)) error {
	_, err := sc.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: token,
		TransactItems: []types.TransactWriteItem{{Put: &types.Put{
			TableName: aws.String("transfers"), Item: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: order}},
		}}},
	}, opts...)
	return err
}

func token(r wire.Request) string {
	var in struct{ ClientRequestToken string }
	json.Unmarshal(r.Body, &in)
	return in.ClientRequestToken
}

// once is transfer without the SDK's retries.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

func TestAReservedTokenIsTheSameOverARestartAndTheSDKRetriesByItself(t *testing.T) {
	stub, api := start(t)
	path := journal(t)
	run := func() (idem.Key, error) {
		c := open(t, path, 6, nil)
		defer c.Close()
		key, err := c.Reserve(t.Context(), "transfer-1", []byte("1"))
		if err != nil {
			return key, err // settled before
		}
		if err := transfer(t.Context(), sdk(&http.Client{}, api.URL), aws.String(string(key)), "1"); err != nil {
			return key, err // it may have happened
		}
		return key, c.Settle(t.Context(), key, idem.Finding{Fate: idem.FateDone})
	}
	api.Lose(5)
	first, err := run()
	require.Error(t, err)
	require.Len(t, api.Requests(), 4, "the SDK's attempts")

	second, err := run()
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Len(t, api.Requests(), 6)

	third, err := run()
	require.ErrorIs(t, err, idem.ErrSettled)
	require.Equal(t, idem.FateDone, idem.FateOf(nil, err))
	require.Equal(t, first, third)
	require.Equal(t, []string{string(first)}, api.Distinct(token))
	require.Equal(t, 1, stub.effects)
}

func TestTheTokenThatTheSDKPutsIntoTheBodyIsFoundAndJournaled(t *testing.T) {
	stub, api := start(t)
	api.Lose(1)
	var r idem.Result
	err := transfer(idem.WithResult(t.Context(), &r), sdk(open(t, journal(t), 6, nil).HTTPClient(), api.URL), nil, "1")
	require.NoError(t, err)
	require.Equal(t, []string{string(r.Key)}, api.Distinct(token))
	require.Len(t, api.Distinct(wire.Body), 1)
	require.Len(t, api.Distinct(wire.Header("Authorization")), 1, "the client's own retry repeats the signature")
	require.Equal(t, 1, stub.effects)
	require.Zero(t, stub.forged)
}

func TestAnAttemptOfTheSDKGoesOutUnderItsOwnSignatureWithAllThatItCovers(t *testing.T) {
	stub, api := start(t)
	api.Lose(3)
	var r idem.Result
	err := transfer(idem.WithResult(t.Context(), &r), sdk(open(t, journal(t), 1, nil).HTTPClient(), api.URL), nil, "1")
	require.NoError(t, err)
	require.Equal(t, 4, r.Attempts)
	require.Len(t, api.Distinct(wire.Header("Amz-Sdk-Request")), 4)
	require.Len(t, api.Distinct(wire.Header("Authorization")), 4)
	require.Len(t, api.Distinct(token), 1)
	require.Zero(t, stub.forged)
	require.Equal(t, 1, stub.effects)
}

func TestAfterARestartANameIsResentUnderASignatureThatHolds(t *testing.T) {
	derived := func() *string { return aws.String(string(idem.DeriveKey("transfers", "1"))) }
	minted := func() *string { return nil }
	for name, tc := range map[string]struct {
		token     func() *string
		authorize func(*http.Request) error
		want      idem.Fate
		forged    int
	}{
		"a derived token, signed by the SDK":             {derived, nil, idem.FateDone, 0},
		"a token of the SDK's, signed by Authorize":      {minted, authorize, idem.FateDone, 0},
		"a token of the SDK's, signed by it: can't hold": {minted, nil, idem.FateUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			stub, api := start(t)
			path := journal(t)
			run := func() idem.Result {
				c := open(t, path, 1, tc.authorize)
				defer c.Close()
				var r idem.Result
				_ = transfer(idem.WithResult(idem.WithIntent(t.Context(), "transfer-1"), &r), sdk(c.HTTPClient(), api.URL), tc.token(), "1", once)
				return r
			}
			api.Lose(1)
			require.Equal(t, idem.FateUnknown, run().Fate)
			require.Equal(t, tc.want, run().Fate)
			require.Len(t, api.Distinct(wire.Body), 1, "the journaled bytes")
			require.Len(t, api.Requests(), 2)
			require.Equal(t, tc.forged, stub.forged)
			require.Equal(t, 1, stub.effects)
		})
	}
}

func TestAuthorizeSignsTheBytesThatAreSentOnEveryAttempt(t *testing.T) {
	stub, api := start(t)
	api.Lose(2)
	signatures := 0
	c := open(t, journal(t), 6, func(r *http.Request) error { signatures++; return authorize(r) })
	require.NoError(t, transfer(t.Context(), sdk(c.HTTPClient(), api.URL), nil, "1"))
	require.Equal(t, 3, signatures)
	require.Len(t, api.Requests(), 3)
	require.Zero(t, stub.forged)
}

func TestAttributesComeInAnotherOrderWithEveryCallSoANameNeedsTheStoredPayload(t *testing.T) {
	stub, api := start(t)
	sc := sdk(open(t, journal(t), 6, nil).HTTPClient(), api.URL)
	item := map[string]types.AttributeValue{}
	for i := range 8 {
		item[fmt.Sprint("attribute", i)] = &types.AttributeValueMemberS{Value: "v"}
	}
	call := func(ctx context.Context) error {
		_, err := sc.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
			TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: aws.String("transfers"), Item: item}}},
		}, once)
		return err
	}
	ctx := idem.WithIntent(t.Context(), "transfer-1")
	var err error
	for range 200 {
		if err = call(ctx); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, idem.ErrMismatch)
	for range 20 {
		require.NoError(t, call(idem.WithStoredPayload(ctx)))
	}
	require.Len(t, api.Requests(), 1)
	require.Equal(t, 1, stub.effects)
}

func TestAttemptsOfTheSDKAndOfTheClientMultiplyUnlessOneIsOff(t *testing.T) {
	attempts := func(hc aws.HTTPClient, opts ...func(*dynamodb.Options)) int {
		_, api := start(t)
		api.Lose(100)
		require.Error(t, transfer(t.Context(), sdk(hc, api.URL), nil, "1", opts...))
		require.Len(t, api.Distinct(token), 1)
		return len(api.Requests())
	}
	require.Equal(t, 4, attempts(&http.Client{}), "the SDK alone")
	require.Equal(t, 4, attempts(open(t, journal(t), 1, nil).HTTPClient()), "the client's are off")
	require.Equal(t, 3, attempts(open(t, journal(t), 3, nil).HTTPClient(), once), "the SDK's are off")
	require.Equal(t, 12, attempts(open(t, journal(t), 3, nil).HTTPClient()), "both")
}
