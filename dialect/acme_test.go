package dialect_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestAcme(t *testing.T) {
	file, err := os.ReadFile("testdata/acme.json")
	require.NoError(t, err)
	acme, err := idem.ParseDialect(file)
	require.NoError(t, err)

	// What Acme's pages say, told a second time, to the mock.
	api := mockserver.Start(t, &mockserver.Config{Profile: mockserver.Profile{
		Name: "acme", Field: "X-Request-Key", MaxKey: 40, Methods: []string{"POST"}, Window: 12 * time.Hour,
		InFlight:     mockserver.Reply{Status: 423},
		Mismatch:     mockserver.Reply{Status: 409, Body: `{"error":{"code":"key_reused"}}`},
		ReplayHeader: "X-Replayed", ReplayValue: "yes",
	}})
	client, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Scope: "acme", Dialect: acme})
	require.NoError(t, err)
	defer client.Close()
	send := func(key idem.Key, name string) (*http.Response, error) {
		ctx := idem.WithIntent(idem.WithKey(t.Context(), key), name)
		req, err := http.NewRequestWithContext(ctx, "POST", api.URL+"/v1/transfers", strings.NewReader(`{"id":"`+name+`"}`))
		require.NoError(t, err)
		return client.Do(req)
	}

	// The transfer happens, its answer is lost, the key is busy for a moment.
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop}, mockserver.Fault{Kind: mockserver.FaultInFlight})
	resp, err := send(idem.NewKey(), "rent")
	require.NoError(t, err)
	require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
	result, _ := idem.ResultOf(resp)
	require.True(t, result.Replayed)
	require.Equal(t, 1, api.Effects("rent"))
	require.Len(t, api.Keys("rent"), 1)

	// Somebody else has used the key.
	key := idem.NewKey()
	other, _ := http.NewRequest("POST", api.URL+"/v1/transfers", strings.NewReader(`{"id":"other"}`))
	other.Header.Set("X-Request-Key", string(key))
	_, err = http.DefaultClient.Do(other)
	require.NoError(t, err)
	_, err = send(key, "lunch")
	require.ErrorIs(t, err, idem.ErrMismatch)
	require.Zero(t, api.Effects("lunch"))
}
