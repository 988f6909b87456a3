package idem

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Key is an intent's identity at the provider. It is opaque and never carries
// personal data; within a scope it is unique.
type Key string

// NewKey mints a random key, a UUIDv7 (RFC 9562 §5.7) in its lower-case form of
// 36 characters. That form passes the checks of nearly every provider.
func NewKey() Key { return Key(uuid.Must(uuid.NewV7()).String()) }

// DeriveKey returns the same key for the same namespace and id, in every process
// and for ever: a UUIDv5 (RFC 9562 §5.5). It is for a consumer that already has
// an identity for what it does, such as a message_id: a redelivered message finds
// its key again. The id can be guessed from the key by someone who guesses ids,
// so neither should be secret or personal.
func DeriveKey(namespace, id string) Key {
	space := uuid.NewSHA1(keySpace, []byte(namespace))
	return Key(uuid.NewSHA1(space, []byte(id)).String())
}

// keySpace is the root of all derived keys; it must never change.
var keySpace = uuid.MustParse("6f1c3c0e-61a5-5f0b-9c2b-7b1de1a3d9c4")

// contextKey is the type of all this package's context keys, so that what is
// meant for this call can be hidden from everything below it.
type contextKey int

const (
	intentKey contextKey = iota
	keyKey
	accountKey
	expiryKey
	storedPayloadKey
	resultPointerKey
	resultKey
	drivingKey
	itemKeyKey
)

// WithIntent gives the one intent made under ctx a business name, unique within
// scope and account, of 1 to 512 bytes of UTF-8. A name that is settled answers
// from the journal, without network, until [Client.Forget].
func WithIntent(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, intentKey, name)
}

// IntentFrom returns the name that ctx carries.
func IntentFrom(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(intentKey).(string)
	return name, ok
}

// WithKey gives the intent made under ctx a key of the caller's own. It is bound
// to one payload: the same key with another is ErrMismatch. The journal remembers
// it for [Options.Keep].
func WithKey(ctx context.Context, key Key) context.Context {
	return context.WithValue(ctx, keyKey, key)
}

// WithAccount says for which provider account the call is, where one client
// serves many; it takes the place of [Options.Account]. Name the account itself,
// not a credential that rotates.
func WithAccount(ctx context.Context, account string) context.Context {
	return context.WithValue(ctx, accountKey, account)
}

// AccountFrom returns the account given by WithAccount. Hooks get a context that
// carries the entry's account, so that Authorize knows whose credential to add.
func AccountFrom(ctx context.Context) (account string, ok bool) {
	account, ok = ctx.Value(accountKey).(string)
	return account, ok
}

// WithExpiry binds the call, and what it enqueues: nothing is sent after t. An
// intent that was never sent is then NotDone, one that was is Unknown; both with
// [ErrExpired].
func WithExpiry(ctx context.Context, t time.Time) context.Context {
	return context.WithValue(ctx, expiryKey, t)
}

// WithStoredPayload lets a name or key that is Pending or Done go on with the
// bytes in the journal though the new request differs, as requests with time
// stamps or random multipart boundaries do.
func WithStoredPayload(ctx context.Context) context.Context {
	return context.WithValue(ctx, storedPayloadKey, true)
}

// WithResult has r filled before the call under ctx returns, whether with an
// answer or an error, even where an SDK in between swallows both. A Result serves
// one call at a time.
func WithResult(ctx context.Context, r *Result) context.Context {
	return context.WithValue(ctx, resultPointerKey, r)
}

// belowContext is what Base and hooks get: it hides whatever named the call above,
// so that a call which a hook makes doesn't take the name for its own. The account
// stays, and so does the list of entries being driven, by which a call that comes
// back from below is kept from waiting for itself.
type belowContext struct{ context.Context }

func (c belowContext) Value(key any) any {
	if k, ours := key.(contextKey); ours && k != accountKey && k != drivingKey {
		return nil
	}
	return c.Context.Value(key)
}

// driving returns the claims that the call which made ctx holds.
func driving(ctx context.Context) []string {
	ids, _ := ctx.Value(drivingKey).([]string)
	return ids
}

func withDriving(ctx context.Context, id string) context.Context {
	held := driving(ctx)
	return context.WithValue(ctx, drivingKey, append(held[:len(held):len(held)], id))
}
