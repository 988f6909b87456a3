package idem

// NoSync lets the journal's later commits return before they are durable, as the library
// never does: tests of power cuts must notice.
func NoSync(s *BoltKeystore) { s.journal.NoSync() }

// NoSweep keeps a client that only looks from sweeping.
func NoSweep(c *Client) { c.sweeper.ran, c.sweeper.last = true, 1<<62 }
