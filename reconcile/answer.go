package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
)

// maxAnswer bounds what a look-up reads, in bytes.
const maxAnswer = 4 << 20

// answer is what the provider said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func get(ctx context.Context, c *http.Client, to *url.URL) (answer, error) {
	if c == nil {
		c = http.DefaultClient
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return answer{}, fmt.Errorf("reconcile: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, fmt.Errorf("reconcile: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = idem.ErrBodyTooLarge
	}
	if err != nil {
		return answer{}, fmt.Errorf("reconcile: GET %s: %w", to.Redacted(), err)
	}
	return answer{resp.StatusCode, resp.Header, body}, nil
}

func (a answer) ok() bool { return a.status >= 200 && a.status <= 299 }

func (a answer) gone() bool { return a.status == http.StatusNotFound || a.status == http.StatusGone }

// unexpected is an answer that tells nothing, so that the next pass asks again.
func (a answer) unexpected(to *url.URL) error {
	return fmt.Errorf("reconcile: GET %s: status %d", to.Redacted(), a.status)
}

func (a answer) parsed() any { return parse(a.body) }

// at returns the JSON at a dotted path as it stands in the answer.
func (a answer) at(path string) (json.RawMessage, bool) {
	body := json.RawMessage(a.body)
	if !json.Valid(body) {
		return nil, false
	}
	if path == "" {
		return body, true
	}
	for step := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(body, &object) == nil {
			body = object[step]
		} else if i, err := strconv.Atoi(step); err == nil && json.Unmarshal(body, &list) == nil && i >= 0 && i < len(list) {
			body = list[i]
		} else {
			return nil, false
		}
	}
	return body, len(body) > 0 && string(body) != "null"
}

// finding is Done, with what was found as the result.
func (a answer) finding(body []byte) idem.Finding {
	return idem.Finding{Fate: idem.FateDone, Status: http.StatusOK, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}
}

// bodyOf is the journaled request's body. A reservation has none.
func bodyOf(ctx context.Context, e idem.Entry) ([]byte, error) {
	req, err := e.Request(ctx)
	switch {
	case errors.Is(err, idem.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reconcile: %w", err)
	case req.Body == nil:
		return nil, nil
	}
	defer req.Body.Close()
	return io.ReadAll(req.Body)
}

// differs tells whether got and asked have different scalars at the same path.
// Fields that only one of them has say nothing: providers rename and add.
func differs(got, asked any) bool {
	a, isObject := asked.(map[string]any)
	g, both := got.(map[string]any)
	if isObject && both {
		for name, v := range a {
			if other, there := g[name]; there && differs(other, v) {
				return true
			}
		}
		return false
	}
	x, isScalar := scalar(asked)
	y, both := scalar(got)
	return isScalar && both && !sameScalar(x, y)
}

// holds tells whether all that was asked stands in got as it was asked.
func holds(got, asked any) bool {
	switch a := asked.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for name, v := range a {
			ok = ok && holds(g[name], v)
		}
		return ok && len(a) > 0
	case []any:
		g, ok := got.([]any)
		ok = ok && len(a) == len(g)
		for i := 0; ok && i < len(a); i++ {
			ok = holds(g[i], a[i])
		}
		return ok
	}
	x, asks := scalar(asked)
	y, both := scalar(got)
	return asks && both && sameScalar(x, y)
}

// scalar returns a string, number or boolean as text.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// sameScalar takes 18 and 18.0 for equal, but no two numbers that a float64 can't
// tell apart.
func sameScalar(x, y string) bool {
	if x == y {
		return true
	}
	a, err := strconv.ParseFloat(x, 64)
	b, err2 := strconv.ParseFloat(y, 64)
	return err == nil && err2 == nil && a == b && a < 1<<53 && a > -1<<53
}
