package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// moodyBank is a provider of which a batch may expect nothing but its keys: a call's
// key gives the call's first answer again; an item's key, if it honours them, the
// item's first effect. What else it does with a call and with each item is drawn.
type moodyBank struct {
	t        *testing.T
	random   *rand.Rand
	itemKeys bool

	mu      sync.Mutex
	well    bool              // no moods any more
	paid    map[string]int    // effects by ID
	refused map[string]bool   // by ID, for good
	done    map[string]bool   // item keys
	keys    map[string]string // ID to its one item key
	answers map[string][]byte // by call key
	bodies  map[string][]byte // by call key
	calls   int
}

func newMoodyBank(t *testing.T, random *rand.Rand, itemKeys bool) *moodyBank {
	return &moodyBank{
		t: t, random: random, itemKeys: itemKeys, paid: map[string]int{}, refused: map[string]bool{}, done: map[string]bool{},
		keys: map[string]string{}, answers: map[string][]byte{}, bodies: map[string][]byte{},
	}
}

func (m *moodyBank) RoundTrip(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	key := req.Header.Get("Idempotency-Key")
	if before, known := m.bodies[key]; known && !bytes.Equal(before, body) {
		m.t.Errorf("call %s came with other bytes", key)
	}
	m.bodies[key] = body
	var lines []payoutLine
	if err := json.Unmarshal(body, &lines); err != nil {
		return nil, err
	}
	m.calls++
	mood := 0
	if !m.well {
		mood = m.random.IntN(14)
	}
	switch mood {
	case 1:
		return nil, io.ErrUnexpectedEOF
	case 2:
		return m.answer(503, nil), nil
	case 3:
		return m.answer(429, nil), nil
	case 4:
		if len(lines) > 3 {
			return m.answer(413, nil), nil
		}
	}
	if m.answers[key] == nil {
		m.answers[key] = m.process(lines)
	}
	switch mood {
	case 5:
		return nil, io.ErrUnexpectedEOF
	case 6:
		return m.answer(503, nil), nil
	case 7:
		resp := m.answer(200, m.answers[key])
		resp.Body = io.NopCloser(bytes.NewReader(m.answers[key][:len(m.answers[key])/2]))
		return resp, nil
	case 8:
		if len(lines) > 1 { // alone, an item takes what can't be read for its own
			return m.answer(200, []byte("<html>")), nil
		}
	case 9:
		return m.answer(207, m.answers[key]), nil
	}
	return m.answer(200, m.answers[key]), nil
}

func (m *moodyBank) answer(status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

func (m *moodyBank) process(lines []payoutLine) []byte {
	var out []payoutLine
	say := func(id, status string) { out = append(out, payoutLine{ID: id, Status: status}) }
	failed := false
	stops := m.random.IntN(2) == 0
	for _, l := range lines {
		if first, known := m.keys[l.ID]; known && first != l.Key {
			m.t.Errorf("item %s came under %s and %s", l.ID, first, l.Key)
		}
		m.keys[l.ID] = l.Key
		mood := 0
		if !m.well {
			mood = m.random.IntN(12)
		}
		if failed && stops {
			say(l.ID, "throttled")
			continue
		}
		switch {
		case m.itemKeys && m.done[l.Key]: // looked up first
		case mood == 1 && m.paid[l.ID] == 0:
			m.refused[l.ID] = true
		case mood >= 2 && mood <= 4: // nothing happens
		case !m.refused[l.ID]:
			m.paid[l.ID]++
			m.done[l.Key] = true
		}
		switch {
		case mood == 2:
			say(l.ID, "throttled")
			failed = true
		case mood == 3 || mood == 5: // left out
		case mood == 4 || mood == 6:
			say(l.ID, "broken")
			failed = true
		case m.refused[l.ID]:
			say(l.ID, "refused")
			failed = true
		case mood == 7:
			say(l.ID, "paid")
			say(l.ID, "paid")
		case mood == 8:
			say(l.ID, "paid")
			say(l.ID, "refused")
		case mood == 9:
			say(l.ID, "paid")
			say("foreign", "paid")
		default:
			say(l.ID, "paid")
		}
	}
	m.random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	if out == nil {
		return []byte("[]")
	}
	b, err := json.Marshal(out)
	if err != nil {
		m.t.Error(err)
	}
	return b
}

// check holds what was said against what happened.
func (m *moodyBank) check(results map[string]idem.ItemResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, n := range m.paid {
		require.LessOrEqual(m.t, n, 1, "effects of %s", id)
	}
	for id, r := range results {
		switch r.Fate {
		case idem.FateDone:
			require.Equal(m.t, 1, m.paid[id], "%s is said to be done", id)
		case idem.FateNotDone:
			require.Zero(m.t, m.paid[id], "%s is said not to be: %v", id, r.Err)
		}
		if sent, ok := m.keys[id]; ok && r.Key != "" {
			require.Equal(m.t, sent, string(r.Key))
		}
	}
}

// Whatever a provider does, each item happens once or is said not to, under one key,
// in every run and every order.
func TestABatchAtAMoodyBankPaysEachItemOnceOrSaysSo(t *testing.T) {
	seed := randomSeed(t)
	for i := range uint64(12) {
		for _, itemKeys := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, item keys %v", i, itemKeys), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { moodyRuns(t, rand.New(rand.NewPCG(seed, i)), itemKeys) })
			})
		}
	}
}

func moodyRuns(t *testing.T, random *rand.Rand, itemKeys bool) {
	m := newMoodyBank(t, random, itemKeys)
	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	c, err := idem.New(ks, &idem.Options{
		Base: m, Dialect: idem.Dialect{KeyFirst: random.IntN(2) == 0}, Breaker: idem.BreakerPolicy{Disabled: true},
		Codecs: map[string]idem.BatchCodec{"payouts": payouts{itemKeys}},
	})
	require.NoError(t, err)
	defer c.Close()
	in := rows(30)
	said := map[string]idem.ItemResult{}
	keys := map[string]idem.Key{}
	run := func() {
		random.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+random.IntN(30))*time.Second)
		defer cancel()
		stop := random.IntN(40)
		for r, err := range c.Batch(ctx, idem.Batch{Name: "may", Items: idem.Items(in...), Codec: "payouts", MaxItems: 1 + random.IntN(12), Concurrency: 1 + random.IntN(3)}) {
			if err != nil {
				continue
			}
			if before := said[r.ID]; before.Fate == idem.FateDone {
				require.Equal(t, idem.FateDone, r.Fate, "what is done stays so")
			}
			if key := keys[r.ID]; key != "" && r.Key != "" {
				require.Equal(t, key, r.Key, "%s", r.ID)
			}
			said[r.ID], keys[r.ID] = r, r.Key
			if stop--; stop == 0 {
				break
			}
		}
	}
	for range 4 {
		run()
		m.check(nil)
		if random.IntN(2) == 0 {
			_, err := c.Resume(context.Background(), nil)
			require.NoError(t, err)
		}
	}
	m.well = true
	for range 3 {
		_, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
	}
	final := map[string]idem.ItemResult{}
	for r, err := range c.Batch(context.Background(), idem.Batch{Name: "may", Items: idem.Items(in...), Codec: "payouts"}) {
		require.NoError(t, err)
		final[r.ID] = r
	}
	require.Len(t, final, 30)
	m.check(final)
	for id, r := range final {
		if r.Fate == idem.FateUnknown {
			e, err := c.Lookup(context.Background(), idem.ItemName("may", id))
			require.NoError(t, err)
			terminal := e.State == idem.StateAmbiguous || m.refused[id] // refused after something that may have acted
			require.True(t, terminal, "%s: %v, %v", id, e.State, r.Err)
		}
	}
}

// randomSeed is IDEM_SEED, or new; it is printed, so that a failure can be repeated.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("IDEM_SEED=%d", seed)
	return seed
}
