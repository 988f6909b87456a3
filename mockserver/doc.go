// Package mockserver is an HTTP API with idempotency keys, made to fail.
//
// It answers one question for tests of clients: how often did it really
// happen? Its ledger counts effects per key and per business value, while
// faults lose requests and answers on the way.
//
//	api := mockserver.Start(t, nil)              // or New and Transport, without a socket
//	api.Script(
//		mockserver.Fault{Kind: mockserver.FaultReset, After: true}, // it happens, the answer is lost
//		mockserver.Fault{Kind: mockserver.FaultStatus, Status: 503},
//	)
//	pay(api.URL+"/charges", `{"id":"order-7","amount":500}`) // the client under test
//	api.Effects("order-7")      // 1, if the client is right
//	len(api.Keys("order-7"))    // 1
//	len(api.Requests())         // 3
//
// A [Profile] says how the API takes keys and answers about them; [Standard] is
// the default, and [Profiles] lists those that behave as known providers do.
// [Config.Handler] does the work; it runs once for each key, and its answer is
// kept as the profile says. With [Config.Batch] the server is a batch endpoint,
// whose items happen, fail and get lost one by one.
//
// # What an effect is
//
// An effect is one run of the handler that answered 2xx to a method other than
// GET, HEAD, OPTIONS and TRACE. A replay runs nothing and is none. A handler
// that knows better sets the header [EffectHeader] to "yes" or "no"; one that
// does several things at once, a batch, calls [Server.Apply] for each. Work goes
// on without its client: an effect under way completes although nobody waits
// for the answer.
//
// # Time
//
// The server has no goroutine that outlives its request and reads [time.Now], so
// that with [Server.Transport] it runs inside a testing/synctest bubble, where
// windows of years close in milliseconds. Make the server inside the bubble, and end with
// [Server.Wait] or [Server.Close] where a client may have left work behind.
//
// The package imports neither the client it tests nor testing.
package mockserver
