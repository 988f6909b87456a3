package idem

import "net/http"

// transport is the client under somebody else's SDK.
type transport struct{ client *Client }

// RoundTrip implements http.RoundTripper. The request is not changed, its body is
// read and closed.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.client.serve("Transport", req).forTransport()
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach Base.
func (t *transport) CloseIdleConnections() {
	if b, ok := t.client.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
