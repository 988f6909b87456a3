package tap

import (
	"net/http"
	"reflect"
	"strings"
)

// retriers are packages whose RoundTrippers resend by themselves, so that the
// provider would see sends that were never counted.
var retriers = []string{
	"github.com/hashicorp/go-retryablehttp",
	"github.com/PuerkitoBio/rehttp",
	"github.com/failsafe-go/failsafe-go/failsafehttp",
	"github.com/gojek/heimdall",
	"github.com/sethgrid/pester",
	"github.com/cristalhq/hedgedhttp",
	"github.com/ybbus/httpretry",
	"github.com/gregjones/httpcache", // answers without asking
}

// Fault tells the type of a transport and what is wrong with it: a nil pointer, or a
// known retrier; "" if nothing is.
func Fault(base http.RoundTripper) (typeName, why string) {
	t := reflect.TypeOf(base)
	typeName = t.String()
	if v := reflect.ValueOf(base); v.Kind() == reflect.Pointer && v.IsNil() {
		return typeName, "is a nil pointer"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, r := range retriers {
		if t.PkgPath() == r || strings.HasPrefix(t.PkgPath(), r+"/") {
			return typeName, "must not resend by itself"
		}
	}
	return typeName, ""
}
