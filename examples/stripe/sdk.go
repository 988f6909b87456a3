package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// sdk is a client library as they usually are. It knows nothing of idem.
type sdk struct {
	http   *http.Client
	secret string
}

// charge makes a charge, under a key that is new with each call.
func (s sdk) charge(ctx context.Context, order string, amount int) (id string, err error) {
	form := url.Values{"amount": {fmt.Sprint(amount)}, "currency": {"eur"}, "id": {order}}
	req, err := http.NewRequestWithContext(ctx, "POST", "https://api.stripe.com/v1/charges", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+s.secret)
	req.Header.Set("Idempotency-Key", rand.Text())
	resp, err := s.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct {
		ID    string
		Error *struct{ Message string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", errors.New(answer.Error.Message)
	}
	return answer.ID, nil
}
