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

// tracer tells Trace and Logger what happens. Both may be nil.
type tracer struct {
	trace  *Trace
	logger *slog.Logger
}

func (t tracer) began(e Entry) {
	t.debug("began", slog.String("key", string(e.Key)), slog.String("intent", e.Intent),
		slog.String("method", e.Method), slog.String("url", e.URL))
	if t.trace != nil && t.trace.Began != nil {
		t.trace.Began(e)
	}
}

func (t tracer) attempt(i AttemptInfo) {
	t.debug("attempt", slog.String("key", string(i.Key)), slog.Int("number", i.Number), slog.Int("status", i.Status),
		slog.String("verdict", i.Verdict), slog.String("fate", i.Fate.String()), slog.Duration("elapsed", i.Elapsed), slog.Any("err", i.Err))
	if t.trace != nil && t.trace.Attempt != nil {
		t.trace.Attempt(i)
	}
}

func (t tracer) waiting(key Key, d time.Duration) {
	t.debug("waiting", slog.String("key", string(key)), slog.Duration("for", d))
	if t.trace != nil && t.trace.Waiting != nil {
		t.trace.Waiting(key, d)
	}
}

func (t tracer) ended(e Entry, err error) {
	t.debug("ended", slog.String("key", string(e.Key)), slog.String("state", e.State.String()),
		slog.String("fate", e.Fate.String()), slog.Any("err", err))
	if t.trace != nil && t.trace.Ended != nil {
		t.trace.Ended(e, err)
	}
}

func (t tracer) overridden(e Entry) {
	t.warn("done after all", slog.String("key", string(e.Key)), slog.String("intent", e.Intent))
	if t.trace != nil && t.trace.Overridden != nil {
		t.trace.Overridden(e)
	}
}

func (t tracer) foreign(call Key, id string) {
	t.warn("the answer names an item that its call didn't carry", slog.String("call", string(call)), slog.String("item", id))
	if t.trace != nil && t.trace.Foreign != nil {
		t.trace.Foreign(call, id)
	}
}

func (t tracer) debug(msg string, attrs ...slog.Attr) { t.log(slog.LevelDebug, msg, attrs) }

func (t tracer) warn(msg string, attrs ...slog.Attr) { t.log(slog.LevelWarn, msg, attrs) }

func (t tracer) log(level slog.Level, msg string, attrs []slog.Attr) {
	if t.logger != nil {
		t.logger.LogAttrs(context.Background(), level, "idem: "+msg, attrs...)
	}
}
