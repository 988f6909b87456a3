package idem

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Try is one provider that can do what a Failover asks for.
type Try struct {
	Client  *Client                                      // of this provider: a scope of its own on the shared keystore
	Request func(context.Context) (*http.Request, error) // builds the provider's own form of the request
}

// Failover has one of several providers do one thing once. The tries are asked in
// order, going on at NotDone alone: what is Unknown at one provider may have happened,
// so that the next one isn't asked. A name that some scope holds as anything but
// NotDone is asked for there only, which keeps a crash between two providers, or a
// rerun, from paying at the second while the first may have paid. A rerun therefore
// lists every provider that an earlier run did.
//
// All clients share one keystore and have distinct scopes, else ErrInvalid. Two
// Failovers under one name wait for each other. Every Request is built before anyone
// is asked, for it tells the account in which the name is looked up; if one fails, or
// is no intent (a GET, or one that [Options.Skip] takes), nobody is asked. The answer
// is that of the last try asked.
func Failover(ctx context.Context, name string, tries ...Try) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) {
		e := &Error{Op: opFailover, Intent: name, Fate: nothingSent(err), Err: err}
		(&intent{ctx: ctx}).fill(Result{Intent: name, Fate: e.Fate, Err: e})
		return nil, e
	}
	if err := checkTries(name, tries); err != nil {
		return fail(err)
	}
	claim, err := tries[0].Client.ks.Claim(ctx, "", "failover\x00"+name, true)
	if err != nil {
		return fail(errors.Join(err, endOf(ctx)))
	}
	defer claim.Release()
	list, err := prepareTries(ctx, name, tries)
	if err != nil {
		return fail(err)
	}
	if list, err = holderAmong(list); err != nil {
		return fail(err)
	}
	for i, t := range list {
		resp, err := t.ask()
		if i == len(list)-1 || FateOf(resp, err) != FateNotDone || ctx.Err() != nil {
			return resp, err
		}
		if resp != nil {
			resp.Body.Close()
		}
	}
	panic("idem: internal error: Failover without a last try")
}

const opFailover = "Failover"

func checkTries(name string, tries []Try) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(tries) == 0 {
		return &InvalidError{"Failover.Tries", 0, "must be at least one"}
	}
	scopes := map[string]bool{}
	for i, t := range tries {
		field := fmt.Sprintf("Failover.Tries[%d]", i)
		switch {
		case t.Client == nil:
			return &InvalidError{field + ".Client", nil, "must not be nil"}
		case t.Request == nil:
			return &InvalidError{field + ".Request", nil, "must not be nil"}
		case t.Client.ks != tries[0].Client.ks:
			return &InvalidError{field + ".Client", t.Client.opts.Scope, "must share the keystore of the others"}
		case scopes[t.Client.opts.Scope]:
			return &InvalidError{field + ".Client", t.Client.opts.Scope, "must have a scope of its own"}
		}
		scopes[t.Client.opts.Scope] = true
	}
	return nil
}

// preparedTry is a try whose request is built, read and checked.
type preparedTry struct {
	client *Client
	in     *intent
	err    error // what is wrong with the request
}

// prepareTries builds all requests, under the name whatever Options.Name would make
// of them.
func prepareTries(ctx context.Context, name string, tries []Try) ([]preparedTry, error) {
	var list []preparedTry
	for i, t := range tries {
		req, err := t.Request(ctx)
		if err == nil && req == nil {
			err = &InvalidError{fmt.Sprintf("Failover.Tries[%d].Request", i), nil, "returned no request"}
		}
		if err != nil {
			return nil, err
		}
		req = req.WithContext(context.WithValue(req.Context(), itemKeyKey, itemIntent{name: name}))
		in, err := t.Client.prepare(opFailover, req, nil)
		if in.skip || in.read {
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, &InvalidError{fmt.Sprintf("Failover.Tries[%d].Request", i), req.Method, "must return a request that is an intent"}
		}
		list = append(list, preparedTry{t.Client, in, err})
	}
	return list, nil
}

// holderAmong is the one try whose scope holds the name as anything but NotDone, in
// the account of its own request; all of them if there is none.
func holderAmong(list []preparedTry) ([]preparedTry, error) {
	for i, t := range list {
		f, err := t.client.entries.find(t.in)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		case f.head.Fate != FateNotDone || f.head.State == StateAbandoned:
			return list[i : i+1], nil
		}
	}
	return list, nil
}

func (t preparedTry) ask() (*http.Response, error) {
	leave, err := t.client.enter()
	defer leave()
	if t.err != nil {
		err = t.err
	}
	return t.client.serveIntent(t.in, err).forDo()
}
