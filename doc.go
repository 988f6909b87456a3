// Package idem makes calls that change something at somebody else's HTTP API
// happen once: the charge, the transfer, the order, the unlock command.
//
// For most uses, open a client over a local journal, name each intent after your
// own record, and ask what is known of it:
//
//	client, err := idem.Open("payments.db", nil)
//	…
//	ctx = idem.WithIntent(ctx, "order-1017")
//	req, _ := http.NewRequestWithContext(ctx, "POST", url, body)
//	resp, err := client.Do(req)
//	switch idem.FateOf(resp, err) {
//	case idem.FateDone:    // it happened
//	case idem.FateNotDone: // it didn't, and won't by itself
//	case idem.FateUnknown: // it may have; Resume, Run or the next Do finds out
//	}
//
// # Promise
//
// An intent is durable before its first byte leaves, and a result is durable
// before Do returns it.
//
// Every attempt that a provider ever sees for one intent carries the same key in
// the same form, and the same bytes: across retries, goroutines, processes,
// crashes and upgrades of this package, until the provider's window for that key
// closes. After that nothing is sent by itself.
//
// Every return says whether it happened: Done, NotDone or Unknown, never a guess.
// Fate speaks of the intent under its name or key, not of this call alone, and it
// never goes down: after Done, later answers only supply the result; after
// Unknown, only proof makes it NotDone.
//
// # What is not promised
//
// Exactly once at a provider that ignores keys: there a request is sent at most
// once, and what is Unknown stays so until Reconcile or a person finds out.
// Anything after the provider's window. NotDone behind a proxy that itself resends.
// A physical effect behind the provider: the lock that was told to open once may
// still be jammed.
//
// A response with FateNotDone may still be worth another call: a 402 is the end of the
// matter and is remembered under the name, but a refusal at the door, such as a 401 or
// a 429 that outlasted the retries, is returned, withdrawn and forgotten. Its status
// says which it was, and its Result's RetryAt when to come back.
//
// # Unknown
//
// Unknown is an honest answer and needs a plan. The entry stays in the journal; a
// goroutine in [Client.Run], a [Client.Resume] at start, or the next call under the
// same name goes on with it. Show the user "pending", not "failed": whoever takes
// Unknown for a failure pays twice.
//
// # Names and keys
//
// An intent has a key, by which the provider knows it, and may have a name, by which
// you do ([WithIntent]). Give it a name that your own data already has, an order
// number or a row id; then a restart, a second click and a redelivered message all
// find the same intent. Without a name or a key ([WithKey]) an intent is anonymous:
// it survives a crash, but the caller must not repeat the call, and an equal one is
// refused while the first is in doubt.
//
// # Compatibility
//
// Keys, fingerprints and the wire form of a key never change for an intent that is
// in a journal. Records carry a version, and a later release reads the records of
// every earlier one. The zero value of every option keeps its meaning.
package idem
