package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

var quiet = log.New(io.Discard, "", 0)

// toxic is what toxiproxy does to the connections through it, in its own words.
type toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`   // upstream: of requests; downstream: of answers
	Toxicity   float32        `json:"toxicity"` // the part of connections that it hits
	Attributes map[string]int `json:"attributes"`
}

// weather is a network on a bad day.
type weather struct {
	name   string
	toxics []toxic
}

var weathers = []weather{
	{"latency", []toxic{{"latency", "downstream", 1, map[string]int{"latency": 20, "jitter": 15}}}},
	{"latency beyond the attempt", []toxic{{"latency", "downstream", 0.5, map[string]int{"latency": 2000}}}},
	{"requests dropped", []toxic{{"timeout", "upstream", 0.5, map[string]int{"timeout": 0}}}},
	{"answers dropped", []toxic{{"timeout", "downstream", 0.5, map[string]int{"timeout": 0}}}},
	{"answers dropped, then closed", []toxic{{"timeout", "downstream", 0.5, map[string]int{"timeout": 50}}}},
	{"requests reset", []toxic{{"reset_peer", "upstream", 0.5, map[string]int{"timeout": 0}}}},
	{"answers reset", []toxic{{"reset_peer", "downstream", 0.5, map[string]int{"timeout": 0}}}},
	{"requests cut", []toxic{{"limit_data", "upstream", 0.5, map[string]int{"bytes": 900}}}},
	{"answers cut in the head", []toxic{{"limit_data", "downstream", 0.5, map[string]int{"bytes": 30}}}},
	{"answers cut in the body", []toxic{{"limit_data", "downstream", 0.5, map[string]int{"bytes": 200}}}},
	{"answers cut after the handshake", []toxic{{"limit_data", "downstream", 0.5, map[string]int{"bytes": 1700}}}},
	{"sliced", []toxic{
		{"slicer", "upstream", 1, map[string]int{"average_size": 40, "size_variation": 20, "delay": 100}},
		{"slicer", "downstream", 1, map[string]int{"average_size": 7, "size_variation": 5, "delay": 100}},
	}},
	{"narrow", []toxic{{"bandwidth", "upstream", 1, map[string]int{"rate": 60}}, {"bandwidth", "downstream", 1, map[string]int{"rate": 60}}}},
	{"closed late", []toxic{{"slow_close", "downstream", 1, map[string]int{"delay": 100}}}},
	{"all of it", []toxic{
		{"latency", "downstream", 0.5, map[string]int{"latency": 30, "jitter": 30}},
		{"slicer", "downstream", 0.5, map[string]int{"average_size": 20, "size_variation": 10, "delay": 100}},
		{"timeout", "downstream", 0.2, map[string]int{"timeout": 40}},
		{"reset_peer", "upstream", 0.2, map[string]int{"timeout": 5}},
		{"limit_data", "downstream", 0.3, map[string]int{"bytes": 1500}},
	}},
}

// startProxy puts a toxiproxy before an address.
func startProxy(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics have loggers of their own
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy
}

func (w weather) begin(t *testing.T, proxy *toxiproxy.Proxy) {
	t.Helper()
	for i, x := range w.toxics {
		text, err := json.Marshal(struct {
			Name string `json:"name"`
			toxic
		}{fmt.Sprint(i), x})
		require.NoError(t, err)
		_, err = proxy.Toxics.AddToxicJson(strings.NewReader(string(text)))
		require.NoError(t, err)
	}
}

// In every weather each call says no more than is true, and when it clears up each intent
// happens once.
func TestABadNetworkNeitherLosesNorDoubles(t *testing.T) {
	for _, p := range []protocol{plainHTTP1, tlsHTTP1, tlsHTTP2} {
		for _, w := range weathers {
			for _, fresh := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/fresh connections %v", p, w.name, fresh), func(t *testing.T) {
					t.Parallel()
					inWeather(t, p, w, fresh)
				})
			}
		}
	}
}

func inWeather(t *testing.T, p protocol, w weather, fresh bool) {
	srv := newProvider(t, p, nil)
	proxy := startProxy(t, srv.addr)
	w.begin(t, proxy)
	url := srv.scheme + "://" + srv.addr
	names := numbered(12)

	base := srv.base(t)
	base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxy.Listen)
	}
	base.DisableKeepAlives = fresh
	opts := options(base)
	opts.Retry.AttemptTimeout = 250 * time.Millisecond
	path := t.TempDir() + "/journal"
	c := openClient(t, path, opts)
	fates := payAll(t, c, srv.Server, url, names, 600)
	require.NoError(t, c.Close())
	base.CloseIdleConnections()
	requests := len(srv.Requests())

	// The next process reaches the same origin by a way that is well.
	opts = options(srv.base(t))
	c = openClient(t, path, opts)
	report, err := c.Resume(context.Background(), nil)
	require.NoError(t, err)
	require.Zero(t, report.Unknown, "%+v", report)
	again := payAll(t, c, srv.Server, url, names, 600)
	require.Equal(t, map[idem.Fate]int{idem.FateDone: len(names)}, again)
	audit(t, srv.Server, names...)
	t.Logf("%d Done, %d NotDone, %d Unknown; %d requests for %d intents", fates[idem.FateDone], fates[idem.FateNotDone], fates[idem.FateUnknown], requests, len(names))
}
