package idem

import "net/http"

// OwnBase is the transport that a client without Options.Base made for itself. Tests
// give it the roots and the proxy that a process would get from its environment.
func OwnBase(c *Client) *http.Transport { return c.ownBase }
