// Package reconcile has hooks for [idem.Options.Reconcile] at providers that offer
// a look-up: by the intent's key, by a filter on their lists, or at the resource's
// own URL.
//
//	client, err := idem.Open("payments.db", &idem.Options{
//		Dialect:   dialect.Increase(),
//		Reconcile: reconcile.ByFilter(httpClient, "idempotency_key", "data.0"),
//	})
//
// Each asks with GET through the given http.Client, which adds the credentials and
// should have a timeout; nil is http.DefaultClient. Never give it the client's own
// Transport.
//
// # What the hooks say
//
// What is found is Done, with the resource as its result. What isn't found is
// Unknown and never NotDone: the request may still be on its way. In the first hour
// after the first send it comes with an error that wraps [idem.ErrNotFound], so
// that the next pass asks again; later it is an answer. An outage, a refusal, and
// a body that can't be read are errors. What is found but differs from the request
// wherever both have a field is an error that wraps [idem.ErrMismatch].
package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/idem-go/idem"
)

// Hook is what [idem.Options.Reconcile] takes.
type Hook = func(context.Context, idem.Entry) (idem.Finding, error)

// settling is how long "not found" may still become "found".
const settling = time.Hour

// ByKey asks at a URL that contains {key} or {intent}, the intent's key or name.
// It may be relative to the URL of the intent's request:
//
//	reconcile.ByKey(c, "https://api.example/orders?client_ref={intent}", "orders.0")
//	reconcile.ByKey(c, "/v1/cards/{key}", "")
//
// Found is where the resource stands in the JSON answer, as a dotted path; "" is
// the whole answer, for which 404 and 410 mean "not found". ByKey panics if the
// template has neither placeholder or is no URL.
func ByKey(c *http.Client, template, found string) Hook {
	if _, err := url.Parse(fill(template, "k", "i")); err != nil || fill(template, "k", "i") == template {
		panic(fmt.Sprintf("reconcile: %q must be a URL with {key} or {intent}", template))
	}
	return func(ctx context.Context, e idem.Entry) (idem.Finding, error) {
		if e.Intent == "" && strings.Contains(template, "{intent}") {
			return idem.Finding{}, fmt.Errorf("reconcile: %w: the intent has no name to ask for", idem.ErrInvalid)
		}
		to, err := resolve(e, fill(template, string(e.Key), e.Intent))
		if err != nil {
			return idem.Finding{}, err
		}
		return look(ctx, c, e, to, found)
	}
}

// ByFilter asks the list at the URL of the intent's own request, filtered by its
// key: GET /transfers?param=key after a POST /transfers. Found is where the first
// element stands in the JSON answer, "data.0" at Increase.
func ByFilter(c *http.Client, param, found string) Hook {
	if param == "" || found == "" {
		panic("reconcile: ByFilter needs the parameter's name and a path to the first element")
	}
	return func(ctx context.Context, e idem.Entry) (idem.Finding, error) {
		to, err := resolve(e, "")
		if err != nil {
			return idem.Finding{}, err
		}
		to.RawQuery = url.Values{param: {string(e.Key)}}.Encode()
		return look(ctx, c, e, to, found)
	}
}

// ByLocation asks for the resource at the URL of the intent's own request, for PUT,
// PATCH and DELETE. A resource in which every field of the request stands as asked
// is Done; so is one that is gone (410) after a DELETE. Anything else is Unknown: a
// newer write may have passed, and a 404 may be a gateway's that has no route.
func ByLocation(c *http.Client) Hook {
	return func(ctx context.Context, e idem.Entry) (idem.Finding, error) {
		to, err := resolve(e, "")
		if err != nil {
			return idem.Finding{}, err
		}
		if e.Method == http.MethodPost {
			return idem.Finding{}, fmt.Errorf("reconcile: %w: the URL of a POST isn't the resource's", idem.ErrInvalid)
		}
		got, err := get(ctx, c, to)
		switch {
		case err != nil:
			return idem.Finding{}, err
		case got.status == http.StatusGone && e.Method == http.MethodDelete:
			return idem.Finding{Fate: idem.FateDone}, nil
		case got.gone() || got.ok() && e.Method == http.MethodDelete:
			return idem.Finding{}, nil
		case !got.ok():
			return idem.Finding{}, got.unexpected(to)
		}
		asked, err := payload(ctx, e)
		if err != nil || !holds(got.parsed(), asked) {
			return idem.Finding{}, err
		}
		return got.finding(got.body), nil
	}
}

// fill puts key and name into a template, escaped for where they stand.
func fill(template, key, intent string) string {
	path, query, asked := strings.Cut(template, "?")
	path = strings.NewReplacer("{key}", url.PathEscape(key), "{intent}", url.PathEscape(intent)).Replace(path)
	if !asked {
		return path
	}
	return path + "?" + strings.NewReplacer("{key}", url.QueryEscape(key), "{intent}", url.QueryEscape(intent)).Replace(query)
}

// resolve is where to ask. A reservation has no URL of its own, nor a batch's item.
func resolve(e idem.Entry, ref string) (*url.URL, error) {
	own, err := url.Parse(e.URL)
	if err != nil {
		return nil, fmt.Errorf("reconcile: the intent's URL: %w", err)
	}
	to, err := own.Parse(ref)
	if err != nil || to.Host == "" {
		return nil, fmt.Errorf("reconcile: %w: nothing tells the host to ask", idem.ErrInvalid)
	}
	return to, nil
}

// look asks for a resource that exists only if the intent took effect.
func look(ctx context.Context, c *http.Client, e idem.Entry, to *url.URL, path string) (idem.Finding, error) {
	got, err := get(ctx, c, to)
	if err != nil {
		return idem.Finding{}, err
	}
	if got.gone() && path == "" {
		return missing(e)
	}
	if !got.ok() {
		return idem.Finding{}, got.unexpected(to)
	}
	body, there := got.at(path)
	if !there {
		if path == "" || got.parsed() == nil {
			return idem.Finding{}, fmt.Errorf("reconcile: GET %s: the answer is no JSON", to.Redacted())
		}
		return missing(e)
	}
	asked, err := payload(ctx, e)
	if err != nil {
		return idem.Finding{}, err
	}
	if differs(parse(body), asked) {
		return idem.Finding{}, fmt.Errorf("reconcile: %w: what is at the provider was made of another", idem.ErrMismatch)
	}
	return got.finding(body), nil
}

// missing is Unknown; for a while, with a reason to ask again.
func missing(e idem.Entry) (idem.Finding, error) {
	if time.Since(e.FirstSent) < settling {
		return idem.Finding{}, fmt.Errorf("reconcile: %w at the provider, so far", idem.ErrNotFound)
	}
	return idem.Finding{}, nil
}

// payload is the JSON that the intent sent; nil if it is no JSON or isn't kept.
func payload(ctx context.Context, e idem.Entry) (any, error) {
	body, err := bodyOf(ctx, e)
	return parse(body), err
}

// parse decodes JSON without rounding its numbers; nil if it is none.
func parse(body []byte) any {
	if !json.Valid(body) {
		return nil
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}
