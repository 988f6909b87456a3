package idem

import (
	"context"
	"log/slog"
	"time"
)

// Trace is a set of optional callbacks, in the manner of
// net/http/httptrace. They run on the goroutine of the call, under no lock, and
// may call the client, though not for the intent they are told of: that call would
// wait for the one they run in. None is given a secret.
type Trace struct {
	// Began is called when an intent is durable and before anything is sent.
	Began func(Entry)

	// Attempt is called after each attempt with its verdict.
	Attempt func(AttemptInfo)

	// Waiting is called before a pause between attempts.
	Waiting func(key Key, d time.Duration)

	// Ended is called when a pass over an entry ends: settled, withdrawn (State
	// is still Pending then, Fate NotDone), or left as it is.
	Ended func(Entry, error)

	// Overridden is called when a proof of Done meets an entry that was settled
	// as NotDone or abandoned.
	Overridden func(Entry)

	// Foreign is called when the answer to a batch's call names an item that the call
	// didn't carry.
	Foreign func(call Key, id string)

	// Breaker is called when the circuit of a group changes between "closed",
	// "open" and "half-open".
	Breaker func(group, from, to string)
}

// AttemptInfo tells of one attempt.
type AttemptInfo struct {
	Key     Key
	Intent  string
	Number  int    // over the intent's life, from 1
	Status  int    // 0 if there was no answer
	Fate    Fate   // of this attempt alone, before earlier ones are considered
	Verdict string // the row of the verdict table, such as "429" or "lost"
	Elapsed time.Duration
	Err     error // nil if there was an answer
}

func (c *Client) traceBegan(e Entry) {
	c.log("began", slog.String("key", string(e.Key)), slog.String("intent", e.Intent), slog.String("method", e.Method), slog.String("url", e.URL))
	if t := c.opts.Trace; t != nil && t.Began != nil {
		t.Began(e)
	}
}

func (c *Client) traceAttempt(i AttemptInfo) {
	c.log("attempt", slog.String("key", string(i.Key)), slog.Int("number", i.Number), slog.Int("status", i.Status),
		slog.String("verdict", i.Verdict), slog.String("fate", i.Fate.String()), slog.Duration("elapsed", i.Elapsed), slog.Any("err", i.Err))
	if t := c.opts.Trace; t != nil && t.Attempt != nil {
		t.Attempt(i)
	}
}

func (c *Client) traceWaiting(key Key, d time.Duration) {
	c.log("waiting", slog.String("key", string(key)), slog.Duration("for", d))
	if t := c.opts.Trace; t != nil && t.Waiting != nil {
		t.Waiting(key, d)
	}
}

func (c *Client) traceEnded(e Entry, err error) {
	c.log("ended", slog.String("key", string(e.Key)), slog.String("state", e.State.String()), slog.String("fate", e.Fate.String()), slog.Any("err", err))
	if t := c.opts.Trace; t != nil && t.Ended != nil {
		t.Ended(e, err)
	}
}

func (c *Client) traceOverridden(e Entry) {
	c.opts.warn("done after all", slog.String("key", string(e.Key)), slog.String("intent", e.Intent))
	if t := c.opts.Trace; t != nil && t.Overridden != nil {
		t.Overridden(e)
	}
}

func (c *Client) log(msg string, attrs ...slog.Attr) {
	if c.opts.Logger != nil {
		c.opts.Logger.LogAttrs(context.Background(), slog.LevelDebug, "idem: "+msg, attrs...)
	}
}

func (o *Options) warn(msg string, attrs ...slog.Attr) {
	if o.Logger != nil {
		o.Logger.LogAttrs(context.Background(), slog.LevelWarn, "idem: "+msg, attrs...)
	}
}
