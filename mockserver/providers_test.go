package mockserver_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/mockserver"
	"github.com/stretchr/testify/require"
)

const uuid4 = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"

// keyed is a request with its key where the profile wants it.
func keyed(c *client, p mockserver.Profile, value string) *http.Request {
	body := order(value)
	if p.Place == mockserver.PlaceJSON {
		body = `{"id":"` + value + `","idempotency_key":"` + uuid4 + `","variables":{"idempotencyKey":"` + uuid4 + `"}}`
	}
	req := c.request(c.t.Context(), "", body)
	switch {
	case p.Quoted:
		req.Header.Set("Idempotency-Key", `"`+uuid4+`"`)
	case p.Place == mockserver.PlaceHeader && p.Field == "":
		req.Header.Set("Idempotency-Key", uuid4)
	case p.Place == mockserver.PlaceHeader:
		req.Header.Set(p.Field, uuid4)
	}
	return req
}

func TestProvidersAnswerAsTheyAreKnownTo(t *testing.T) {
	for _, tt := range []struct {
		profile                          mockserver.Profile
		repeat, inFlight, other, failure int // statuses: of a repeat, while the first runs, for another payload, of the repeat of a 500
	}{
		{mockserver.Standard(), 201, 409, 422, 201},
		{mockserver.IETF(), 201, 409, 422, 500},
		{mockserver.StripeV1(), 201, 409, 400, 500},
		{mockserver.StripeV2(), 201, 409, 400, 201},
		{mockserver.Adyen(), 201, 422, 201, 201},
		{mockserver.AzureRepeatable(), 201, 409, 400, 201},
		{mockserver.Bridge(), 201, 409, 422, 201},
		{mockserver.Checkbook(), 201, 409, 201, 201},
		{mockserver.Checkout(), 202, 409, 202, 201},
		{mockserver.DwollaIncident(), 201, 409, 201, 409},
		{mockserver.Fineract(), 201, 425, 201, 500},
		{mockserver.Formance(), 201, 201, 400, 201},
		{mockserver.GoCardless(), 409, 409, 409, 201},
		{mockserver.Increase(), 201, 201, 409, 201},
		{mockserver.Mastercard(), 201, 409, 422, 201},
		{mockserver.ModernTreasury(), 201, 409, 201, 201},
		{mockserver.Resend(), 201, 409, 409, 201},
		{mockserver.Shopify(), 201, 200, 200, 201},
		{mockserver.Square(), 201, 201, 400, 201},
		{mockserver.Svix(), 201, 201, 201, 201},
		{mockserver.Mute(), 201, 201, 201, 201},
	} {
		t.Run(tt.profile.Name, func(t *testing.T) {
			status := func(c *client, value string) int {
				resp, _, err := c.do(keyed(c, tt.profile, value))
				require.NoError(t, err)
				return resp.StatusCode
			}
			c := inMemory(t, &mockserver.Config{Profile: tt.profile})
			require.Equal(t, 201, status(c, "o"))
			require.Equal(t, tt.repeat, status(c, "o"), "repeat")
			require.Equal(t, tt.other, status(c, "other"), "another payload")
			if !tt.profile.Mute {
				c.effects(1, "o")
			}

			c = inMemory(t, &mockserver.Config{Profile: tt.profile})
			c.script(mockserver.Fault{Kind: mockserver.FaultFail})
			require.Equal(t, 500, status(c, "o"))
			require.Equal(t, tt.failure, status(c, "o"), "repeat of a failure")

			synctest.Test(t, func(t *testing.T) {
				c := inMemory(t, &mockserver.Config{Profile: tt.profile})
				c.script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: time.Second})
				go c.do(keyed(c, tt.profile, "o"))
				synctest.Wait()
				require.Equal(t, tt.inFlight, status(c, "o"), "in flight")
				c.api.Wait()
			})
		})
	}
	require.Len(t, mockserver.Profiles(), 21)
}

func TestPeculiaritiesOfProviders(t *testing.T) {
	send := func(c *client, p mockserver.Profile, value string) (http.Header, string) {
		resp, text, err := c.do(keyed(c, p, value))
		require.NoError(t, err)
		return resp.Header, text
	}
	t.Run("Adyen says when a repeat is worth while", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Adyen()})
		c.script(mockserver.Fault{Kind: mockserver.FaultInFlight})
		h, text := send(c, mockserver.Adyen(), "o")
		require.Equal(t, "true", h.Get("transient-error"))
		require.Equal(t, uuid4, h.Get("idempotency-key"))
		require.Contains(t, text, `"704"`)
	})
	t.Run("Fineract marks what is not a replay", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Fineract()})
		c.script(mockserver.Fault{Kind: mockserver.FaultInFlight})
		h, text := send(c, mockserver.Fineract(), "o")
		require.Equal(t, "true", h.Get("x-served-from-cache"))
		require.Equal(t, order("o"), text)
	})
	t.Run("Increase names the holder", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Increase()})
		send(c, mockserver.Increase(), "o")
		_, text := send(c, mockserver.Increase(), "other")
		require.Contains(t, text, `"resource_id":"res_1"`)
	})
	t.Run("Checkout answers the kept body as 202", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Checkout()})
		_, text := send(c, mockserver.Checkout(), "o")
		_, again := send(c, mockserver.Checkout(), "o")
		require.Equal(t, text, again)
	})
	t.Run("Azure accepts or rejects", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.AzureRepeatable()})
		h, _ := send(c, mockserver.AzureRepeatable(), "o")
		require.Equal(t, "accepted", h.Get("Repeatability-Result"))
		h, _ = send(c, mockserver.AzureRepeatable(), "other")
		require.Equal(t, "rejected", h.Get("Repeatability-Result"))
	})
	t.Run("Mastercard takes version 4 alone", func(t *testing.T) {
		c := inMemory(t, &mockserver.Config{Profile: mockserver.Mastercard()})
		c.post(400, strings.Replace(uuid4, "-4", "-7", 1), order("o"))
	})
	t.Run("Dwolla's lock ends with the window", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := inMemory(t, &mockserver.Config{Profile: mockserver.DwollaIncident()})
			c.script(mockserver.Fault{Kind: mockserver.FaultFail, After: true})
			c.post(500, "k", order("o"))
			c.api.Restart(true)
			c.post(409, "k", order("o"))
			time.Sleep(24 * time.Hour)
			c.post(201, "k", order("o"))
			c.effects(2, "o")
		})
	})
}
