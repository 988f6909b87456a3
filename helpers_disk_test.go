package idem_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/idem-go/idem"
)

// diskRequest is a named call whose body has about this size.
func diskRequest(name string, size int) *http.Request {
	body := fmt.Sprintf(`{"id":%q,"note":%q}`, name, strings.Repeat("n", size))
	return crashRequest(idem.WithIntent(context.Background(), name), "http://api.example", body)
}
