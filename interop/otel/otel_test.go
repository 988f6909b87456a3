// Package otel_test puts otelhttp above Client.Transport and below it, as Options.Base.
//
// What works. Above there is one span for a call, below one for each attempt, each with
// its own traceparent; both at once nest. A traceparent is no part of the payload, so a
// name goes on under a new trace. Key, body and fate are as without.
//
// What to mind. Above, the traceparent is on the request that is journaled: attempts after
// a restart carry the trace of the first call. Below, each attempt carries its own.
package otel_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/interop/internal/ours"
	"github.com/idem-go/idem/mockserver"
)

// traced wraps transports and keeps the spans.
type traced struct {
	spans *tracetest.SpanRecorder
	opts  []otelhttp.Option
}

func trace() *traced {
	spans := tracetest.NewSpanRecorder()
	return &traced{spans: spans, opts: []otelhttp.Option{
		otelhttp.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otelhttp.WithPropagators(propagation.TraceContext{}),
	}}
}

func (t *traced) over(base http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(base, t.opts...)
}

func post(ctx context.Context, rt http.RoundTripper, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"id":"7"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

func traceparents(api *mockserver.Server) map[string]int {
	out := map[string]int{}
	for _, r := range api.Requests() {
		out[r.Header.Get("Traceparent")]++
	}
	return out
}

func TestAboveThereIsASpanForTheCallAndBelowOneForEachAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		above, below                bool
		spans, traceparents, traces int
	}{
		"above": {above: true, spans: 1, traceparents: 1, traces: 1},
		"below": {below: true, spans: 3, traceparents: 3, traces: 3},
		"both":  {above: true, below: true, spans: 4, traceparents: 3, traces: 1},
	} {
		t.Run(name, func(t *testing.T) {
			api, tracer := mockserver.Start(t, nil), trace()
			api.Script(mockserver.Fault{Kind: mockserver.FaultDrop, Times: 2})
			opts := idem.Options{}
			if tc.below {
				opts.Base = tracer.over(&http.Transport{})
			}
			rt := ours.Open(t, ours.Journal(t), 3, opts).Transport()
			if tc.above {
				rt = tracer.over(rt)
			}
			var r idem.Result
			resp, err := post(idem.WithResult(t.Context(), &r), rt, api.URL)
			require.NoError(t, err)
			require.Equal(t, idem.FateDone, idem.FateOf(resp, err))
			require.Equal(t, 3, r.Attempts)
			require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
			require.Equal(t, []string{`{"id":"7"}`}, api.Bodies("7"))
			require.Equal(t, 1, api.Effects("7"))
			require.Len(t, tracer.spans.Ended(), tc.spans)
			require.Len(t, traceparents(api), tc.traceparents)
			require.Len(t, traces(tracer), tc.traces)
		})
	}
}

func TestANameGoesOnUnderAnotherTrace(t *testing.T) {
	api, path, tracer := mockserver.Start(t, nil), ours.Journal(t), trace()
	api.Script(mockserver.Fault{Kind: mockserver.FaultDrop})
	var r idem.Result
	ctx := idem.WithResult(idem.WithIntent(t.Context(), "order-7"), &r)
	first := ours.Open(t, path, 1, idem.Options{})
	_, err := post(ctx, tracer.over(first.Transport()), api.URL)
	var e *idem.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, idem.FateUnknown, e.Fate)
	require.NoError(t, first.Close())

	second := ours.Open(t, path, 1, idem.Options{})
	_, err = post(ctx, tracer.over(second.Transport()), api.URL)
	require.NoError(t, err)
	require.Equal(t, []string{string(r.Key)}, api.Keys("7"))
	require.Equal(t, 1, api.Effects("7"))
	require.Len(t, traces(tracer), 2)
	require.Len(t, traceparents(api), 1, "the journaled one")
}

func traces(t *traced) map[string]bool {
	out := map[string]bool{}
	for _, s := range t.spans.Ended() {
		out[s.SpanContext().TraceID().String()] = true
	}
	return out
}
