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
// rerun, from paying at the second while the first may have paid.
//
// All clients share one keystore and have distinct scopes, else ErrInvalid. Two
// Failovers under one name wait for each other. The answer is that of the last try
// asked; nobody was asked if the error is ErrInvalid or a Request's own.
func Failover(ctx context.Context, name string, tries ...Try) (*http.Response, error) {
	fail := func(fate Fate, err error) (*http.Response, error) {
		return nil, &Error{Op: "Failover", Intent: name, Fate: fate, Err: err}
	}
	if err := checkTries(name, tries); err != nil {
		return fail(FateUnknown, err)
	}
	claim, err := tries[0].Client.ks.Claim(ctx, "failover\x00"+name, true)
	if err != nil {
		return fail(FateUnknown, errors.Join(err, endOf(ctx)))
	}
	defer claim.Release()
	holder, err := holderOf(ctx, name, tries)
	if err != nil {
		return fail(FateUnknown, err)
	}
	if holder != nil {
		return holder.do(ctx, name)
	}
	for i, t := range tries {
		resp, err := t.do(ctx, name)
		if i == len(tries)-1 || FateOf(resp, err) != FateNotDone || ctx.Err() != nil {
			return resp, err
		}
		if resp != nil {
			resp.Body.Close()
		}
	}
	panic("idem: internal error: Failover without a last try")
}

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

// holderOf is the try whose scope holds the name as anything but NotDone.
func holderOf(ctx context.Context, name string, tries []Try) (*Try, error) {
	for i := range tries {
		e, err := tries[i].Client.Lookup(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		case e.Fate != FateNotDone || e.State == StateAbandoned:
			return &tries[i], nil
		}
	}
	return nil, nil
}

// do asks one provider, under the name whatever Options.Name would make of it.
func (t *Try) do(ctx context.Context, name string) (*http.Response, error) {
	req, err := t.Request(ctx)
	if err == nil && req == nil {
		err = &InvalidError{"Try.Request", nil, "returned no request"}
	}
	if err != nil {
		in := &intent{op: "Failover", ctx: ctx, name: name, account: t.Client.accountOf(ctx), req: noRequest}
		return nil, t.Client.refuse(in, err).failure()
	}
	forced := context.WithValue(req.Context(), itemKeyKey, itemIntent{name: name})
	return t.Client.serve("Failover", req.WithContext(forced)).forDo()
}
