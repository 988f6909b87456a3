package idem

import (
	"strconv"

	"github.com/google/uuid"
)

// itemKey derives an item's key, the same in every run. A changed item after a
// refusal, and a forgotten one, get the next key, which is derived from the last.
// The namespaces can't meet: that of a first key has a colon, that of a next one is
// a UUID.
func itemKey(c *Client, account, batch, id string, parent Key) Key {
	space := strconv.Itoa(len(c.opts.Scope)) + ":" + c.opts.Scope + account
	if parent != "" {
		space = string(parent)
	}
	key := DeriveKey(space, storeName(batch, id))
	if c.opts.Dialect.KeyForm == KeyUUIDv4 {
		u := uuid.MustParse(string(key))
		u[6] = u[6]&0x0f | 0x40 // the version that the provider checks for
		key = Key(u.String())
	}
	return key
}

// freeKey is the first of an item's keys after parent that no freed entry has:
// what was forgotten is not to be mistaken for what is new.
func (r *batchRun) freeKey(in *intent, id string, parent Key) Key {
	for {
		key := itemKey(r.client, in.account, r.batch.Name, id, parent)
		f, err := r.client.entries.byKey(r.ctx, key)
		if err != nil || !f.head.Freed {
			return key // a failure is met again by the commit
		}
		parent = key
	}
}
