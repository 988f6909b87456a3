package idem_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dialect"
)

func TestPresetsKeyTheRequestsThatTheProviderKeys(t *testing.T) {
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		d            idem.Dialect
		method, path string
		keyed        bool
		window       time.Duration
	}{
		"Stripe v1":                      {dialect.Stripe(), "POST", "/v1/charges", true, day},
		"Stripe v1 has no key on DELETE": {dialect.Stripe(), "DELETE", "/v1/customers/1", false, day},
		"Stripe v2":                      {dialect.Stripe(), "POST", "/v2/core/events", true, 30 * day},
		"Stripe v2 has one on DELETE":    {dialect.Stripe(), "DELETE", "/v2/core/x/1", true, 30 * day},
		"a PayPal order":                 {dialect.PayPal(), "POST", "/v2/checkout/orders", true, 6 * time.Hour},
		"a PayPal capture of an order":   {dialect.PayPal(), "POST", "/v2/checkout/orders/1/capture", true, 6 * time.Hour},
		"a PayPal refund":                {dialect.PayPal(), "POST", "/v2/payments/captures/1/refund", true, 45 * day},
		"a PayPal payout":                {dialect.PayPal(), "POST", "/v1/payments/payouts", true, 30 * day},
		"a PayPal vault token":           {dialect.PayPal(), "POST", "/v3/vault/payment-tokens", true, 3 * time.Hour},
		"a PayPal order of version 1":    {dialect.PayPal(), "POST", "/v1/checkout/orders", true, idem.Forever},
		"a PayPal invoice":               {dialect.PayPal(), "POST", "/v2/invoicing/invoices", false, 0},
		"a Square payment":               {dialect.Square(), "POST", "/v2/payments", true, day},
		"a Square search":                {dialect.Square(), "POST", "/v2/orders/search", false, day},
		"a GoCardless payment":           {dialect.GoCardless(), "POST", "/payments", true, time.Hour},
		"a GoCardless action":            {dialect.GoCardless(), "POST", "/payments/1/actions/cancel", false, 0},
		"a Plaid authorization":          {dialect.Plaid(), "POST", "/transfer/authorization/create", true, 2 * day},
		"a Plaid transfer":               {dialect.Plaid(), "POST", "/transfer/create", false, 0},
		"a Wise transfer":                {dialect.Wise(), "POST", "/v1/transfers", true, time.Hour},
		"a Wise conversion":              {dialect.Wise(), "POST", "/v2/profiles/1/balance-movements", true, time.Hour},
		"a Klarna capture":               {dialect.Klarna(), "POST", "/ordermanagement/v1/orders/1/captures", true, day},
		"a Compute insert":               {dialect.GoogleCompute(), "DELETE", "/compute/v1/projects/p/x", true, time.Hour},
		"nothing":                        {dialect.None(), "POST", "/", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, keyed := tc.d.Route(tc.method, tc.path)
			require.Equal(t, tc.keyed, keyed)
			require.Equal(t, tc.window, got.Window)
			require.Equal(t, tc.d.Name, got.Name)
		})
	}
}

func TestPresetsReadTheProvidersAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		d      idem.Dialect
		path   string
		status int
		header http.Header
		body   string
		want   []string
	}{
		"Stripe, in flight": {dialect.Stripe(), "/v1/charges", 409, nil,
			`{"error":{"code":"idempotency_key_in_use","type":"invalid_request_error"}}`, []string{"in flight"}},
		"Stripe, another payload": {dialect.Stripe(), "/v1/charges", 400, nil,
			`{"error":{"type":"idempotency_error"}}`, []string{"mismatch"}},
		"Stripe, an ordinary 400": {dialect.Stripe(), "/v1/charges", 400, nil,
			`{"error":{"type":"invalid_request_error"}}`, nil},
		"Stripe, a stored 500": {dialect.Stripe(), "/v1/charges", 500,
			http.Header{"Idempotent-Replayed": {"true"}, "Stripe-Should-Retry": {"false"}}, `{}`, []string{"replay", "stop"}},
		"IETF, in flight":     {dialect.IETF(), "/", 409, nil, "", []string{"in flight"}},
		"IETF, other payload": {dialect.IETF(), "/", 422, nil, "", []string{"mismatch"}},
		"PayPal, in flight": {dialect.PayPal(), "/v2/payments/captures/1/refund", 409, nil,
			`{"name":"RESOURCE_CONFLICT","details":[{"issue":"PREVIOUS_REQUEST_IN_PROGRESS"}]}`, []string{"in flight"}},
		"Square, key reused": {dialect.Square(), "/v2/payments", 400, nil,
			`{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`, []string{"mismatch"}},
		"Adyen, in flight": {dialect.Adyen(), "/v71/payments", 422, http.Header{"Transient-Error": {"true"}},
			`{"status":422,"errorCode":"704"}`, []string{"in flight", "retry"}},
		"Adyen, silence means stop": {dialect.Adyen(), "/v71/payments", 500, nil,
			`{"status":500,"errorCode":"905"}`, []string{"stop"}},
		"Adyen, a proxy's silence doesn't": {dialect.Adyen(), "/v71/payments", 502, nil, `<html>`, nil},
		"GoCardless, already done": {dialect.GoCardless(), "/payments", 409, nil,
			`{"error":{"type":"invalid_state","errors":[{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM1"}}]}}`,
			[]string{"already done"}},
		"GoCardless, another conflict": {dialect.GoCardless(), "/payments", 409, nil,
			`{"error":{"type":"invalid_state","errors":[{"reason":"mandate_is_inactive"}]}}`, nil},
		"Mercado Pago, locked":    {dialect.MercadoPago(), "/v1/payments", 423, nil, "", []string{"in flight"}},
		"Mercado Pago, conflict":  {dialect.MercadoPago(), "/v1/payments", 409, nil, "", nil},
		"Increase, key used":      {dialect.Increase(), "/ach_transfers", 409, nil, `{"type":"idempotency_key_already_used_error"}`, []string{"mismatch"}},
		"Increase, other 409":     {dialect.Increase(), "/ach_transfers", 409, nil, `{"type":"invalid_operation_error"}`, nil},
		"Resend, in flight":       {dialect.Resend(), "/emails", 409, nil, `{"name":"concurrent_idempotent_requests"}`, []string{"in flight"}},
		"Resend, another payload": {dialect.Resend(), "/emails", 409, nil, `{"name":"invalid_idempotent_request"}`, []string{"mismatch"}},
		"Resend, a bad key":       {dialect.Resend(), "/emails", 400, nil, `{"name":"invalid_idempotency_key"}`, []string{"not done"}},
		"Azure, another payload":  {dialect.Azure(), "/sms", 400, http.Header{"Repeatability-Result": {"rejected"}}, "", []string{"mismatch"}},
		"Azure, too late":         {dialect.Azure(), "/sms", 412, http.Header{"Repeatability-Result": {"rejected"}}, "", nil},
		"Formance, replayed":      {dialect.Formance(), "/v2/l/transactions", 200, http.Header{"Idempotency-Hit": {"true"}}, "", []string{"replay"}},
		"AWS, another payload":    {dialect.AWS(), "/", 400, nil, `{"__type":"IdempotentParameterMismatchException"}`, []string{"mismatch"}},
		"AWS, in flight": {dialect.AWS(), "/", 400, http.Header{"X-Amzn-Errortype": {"TransactionInProgressException"}},
			`{}`, []string{"in flight"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, keyed := tc.d.Route("POST", tc.path)
			require.True(t, keyed)
			require.ElementsMatch(t, tc.want, d.Reading("POST", tc.status, tc.header, tc.body))
		})
	}
}
