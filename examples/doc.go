// Package examples holds one program for each situation. Each runs by itself, from the
// root of the repository, tells what it does, and fails if its own audit does:
//
//   - payments pays a file once, however often it is run.
//   - payouts pays a thousand items in calls of fifty, and is killed on the way.
//   - stripe puts the client under an SDK that knows nothing of it.
//   - inbox consumes messages that are delivered more than once.
//   - failover pays at one of two banks, and is killed between them.
//   - homegateway queues commands for a home that is offline.
package examples
