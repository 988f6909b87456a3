package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Trace is a set of optional callbacks, in the manner of
// net/http/httptrace. They run on the goroutine of the call, under no lock, and
// may call the client, though not for the intent they are told of: that call would
// wait for the one they run in. Each gets the context of the call first, that of Do's
// request or the one given to Resume, Run or Batch. None is given a secret.
type Trace struct {
	// Began is called when an intent is durable and before anything is sent.
	Began func(context.Context, Entry)

	// Attempt is called after each attempt with its verdict.
	Attempt func(context.Context, AttemptInfo)

	// Waiting is called before a pause between attempts.
	Waiting func(ctx context.Context, key Key, d time.Duration)

	// Ended is called when a pass over an entry ends: settled, withdrawn (State
	// is still Pending then, Fate NotDone), or left as it is.
	Ended func(context.Context, Entry, error)

	// Overridden is called when a proof of Done meets an entry that was settled
	// as NotDone or abandoned.
	Overridden func(context.Context, Entry)

	// Foreign is called when the answer to a batch's call names an item that the call
	// didn't carry.
	Foreign func(ctx context.Context, call Key, id string)

	// Breaker is called when the circuit of a group changes between "closed",
	// "open" and "half-open", with the context of the call that made it change.
	Breaker func(ctx context.Context, group, from, to string)
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

// tracer tells Trace and Logger what happens. Both may be nil. Each line of the log has
// the key and the name, and the call's context: what somebody on call must see is a
// warning (Ambiguous, an open circuit, missing credentials, a lost claim, a proof that
// overrides), how each pass ends is Info, steps are Debug.
type tracer struct {
	trace  *Trace
	logger *slog.Logger
}

func who(key Key, name string) []slog.Attr {
	return []slog.Attr{slog.String("key", string(key)), slog.String("intent", name)}
}

func (t tracer) began(ctx context.Context, e Entry) {
	t.log(ctx, slog.LevelDebug, "began", append(who(e.Key, e.Intent), slog.String("method", e.Method), slog.String("url", e.URL))...)
	if t.trace != nil && t.trace.Began != nil {
		t.trace.Began(ctx, e)
	}
}

func (t tracer) attempt(ctx context.Context, i AttemptInfo) {
	t.log(ctx, slog.LevelDebug, "attempt", append(who(i.Key, i.Intent),
		slog.Int("number", i.Number), slog.Int("status", i.Status), slog.String("verdict", i.Verdict),
		slog.String("fate", i.Fate.String()), slog.Duration("elapsed", i.Elapsed), slog.Any("err", i.Err))...)
	if t.trace != nil && t.trace.Attempt != nil {
		t.trace.Attempt(ctx, i)
	}
}

func (t tracer) waiting(ctx context.Context, key Key, name string, d time.Duration) {
	t.log(ctx, slog.LevelDebug, "waiting", append(who(key, name), slog.Duration("for", d))...)
	if t.trace != nil && t.trace.Waiting != nil {
		t.trace.Waiting(ctx, key, d)
	}
}

func (t tracer) ended(ctx context.Context, e Entry, err error) {
	level, state := endLevel(e, err)
	t.log(ctx, level, "ended", append(who(e.Key, e.Intent), slog.String("state", state), slog.String("fate", e.Fate.String()),
		slog.Int("attempts", e.Attempts), slog.String("dialect", e.Dialect), slog.Any("err", err))...)
	if t.trace != nil && t.trace.Ended != nil {
		t.trace.Ended(ctx, e, err)
	}
}

// endLevel is how loudly the end of a pass is told, and the state in a word.
func endLevel(e Entry, err error) (slog.Level, string) {
	switch {
	case e.State == StateAmbiguous:
		return slog.LevelWarn, e.State.String()
	case isStoreError(err):
		return slog.LevelError, e.State.String()
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrClaimLost), errors.Is(err, ErrAccountChanged):
		return slog.LevelWarn, e.State.String()
	case e.State == StatePending && e.Fate == FateNotDone:
		return slog.LevelInfo, "Withdrawn"
	}
	return slog.LevelInfo, e.State.String()
}

func (t tracer) overridden(ctx context.Context, e Entry) {
	t.log(ctx, slog.LevelWarn, "done after all", who(e.Key, e.Intent)...)
	if t.trace != nil && t.trace.Overridden != nil {
		t.trace.Overridden(ctx, e)
	}
}

func (t tracer) foreign(ctx context.Context, call Key, id string) {
	t.log(ctx, slog.LevelWarn, "the answer names an item that its call didn't carry", slog.String("call", string(call)), slog.String("item", id))
	if t.trace != nil && t.trace.Foreign != nil {
		t.trace.Foreign(ctx, call, id)
	}
}

func (t tracer) breaker(ctx context.Context, group, from, to string) {
	level := slog.LevelInfo
	if to == "open" {
		level = slog.LevelWarn
	}
	t.log(ctx, level, "circuit "+to, slog.String("group", group), slog.String("from", from))
	if t.trace != nil && t.trace.Breaker != nil {
		t.trace.Breaker(ctx, group, from, to)
	}
}

func (t tracer) warn(ctx context.Context, msg string, attrs ...slog.Attr) {
	t.log(ctx, slog.LevelWarn, msg, attrs...)
}

func (t tracer) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if t.logger != nil {
		t.logger.LogAttrs(ctx, level, "idem: "+msg, attrs...)
	}
}
