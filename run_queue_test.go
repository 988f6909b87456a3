package idem_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/keystore"
	"github.com/idem-go/idem/mockserver"
)

func TestAHangingEntryHoldsNoNewOneUp(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultHang})
		stop := w.run()
		w.enqueue("hangs")
		synctest.Wait()
		began := time.Now()
		w.enqueue("fresh")
		synctest.Wait()
		require.Equal(t, 1, w.srv.Effects("fresh"))
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, stop())
	})
}

func TestADayOfOutageIsMetWithGrowingPauses(t *testing.T) {
	var sends atomic.Int32
	base := roundTrip(func(req *http.Request) (*http.Response, error) {
		sends.Add(1)
		return verdictAnswer(503, "")(req)
	})
	synctest.Test(t, func(t *testing.T) {
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: base, Dialect: idem.Dialect{Window: 48 * time.Hour}})
		require.NoError(t, err)
		_, err = c.Enqueue(verdictNamed("n"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		var wakes sync.WaitGroup
		wakes.Go(func() {
			for ctx.Err() == nil { // wake-ups don't shorten the pauses
				time.Sleep(time.Minute)
				c.Wake()
			}
		})
		require.NoError(t, c.Run(ctx))
		wakes.Wait()
		require.Less(t, sends.Load(), int32(700), "in a day")
		require.Greater(t, sends.Load(), int32(100))
		require.NoError(t, c.Close())
	})
}

func TestPausesGrowOverRestarts(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		for range 40 {
			w.srv.Script(mockserver.Fault{Kind: mockserver.FaultFail, Status: 503})
		}
		w.enqueue("n")
		for range 8 {
			stop := w.run()
			time.Sleep(3 * time.Second)
			require.NoError(t, stop())
			w.restart(nil)
		}
		require.Equal(t, idem.StatePending, w.entry("n").State)
		require.LessOrEqual(t, w.sent(), 12, "three for each start, if each began anew")
	})
}

// unavailable is a keystore that can't be reached now and then.
type unavailable struct {
	idem.Keystore
	away atomic.Bool
}

func (u *unavailable) Scan(ctx context.Context, q keystore.Query) iter.Seq2[keystore.Record, error] {
	if u.away.Load() {
		return func(yield func(keystore.Record, error) bool) {
			yield(keystore.Record{}, fmt.Errorf("%w: no route to it", keystore.ErrUnavailable))
		}
	}
	return u.Keystore.Scan(ctx, q)
}

func TestRunOutlivesAKeystoreThatIsAwayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ks := &unavailable{Keystore: idem.NewMemoryKeystore()}
		base := &verdictBase{}
		c, err := idem.New(ks, &idem.Options{Base: base})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		ks.away.Store(true)
		_, err = c.Enqueue(verdictNamed("n"))
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		require.Empty(t, base.sends())
		ks.away.Store(false)
		time.Sleep(2 * time.Minute)
		require.Len(t, base.sends(), 1)
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, c.Close())
	})
}

func TestAFailingSettledHookIsAskedAfterGrowingPauses(t *testing.T) {
	var asked atomic.Int32
	hook := func(context.Context, idem.Entry) error { asked.Add(1); return errors.New("not now") }
	inResumeWorld(t, idem.Options{Settled: hook}, func(t *testing.T, w *resumeWorld) {
		stop := w.run()
		w.enqueue("n")
		time.Sleep(time.Hour)
		require.Less(t, asked.Load(), int32(40))
		require.Greater(t, asked.Load(), int32(8))
		require.NoError(t, stop())
	})
}

func TestShutdownLetsCallsFinishAndTakesNoNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: base})
		require.NoError(t, err)
		release := make(chan struct{})
		base.script(func(req *http.Request) (*http.Response, error) {
			<-release
			return verdictAnswer(200, "{}")(req)
		})
		call, run, down := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.Do(verdictNamed("n")); call <- err }()
		go func() { run <- c.Run(context.Background()) }()
		synctest.Wait()
		go func() { down <- c.Shutdown(context.Background()) }()
		synctest.Wait()
		_, err = c.Do(verdictNamed("m"))
		require.ErrorIs(t, err, idem.ErrClosed)
		require.Empty(t, down)
		close(release)
		require.NoError(t, <-call)
		require.ErrorIs(t, <-run, idem.ErrClosed)
		require.NoError(t, <-down)
		require.NoError(t, c.Close())
	})
}

func TestShutdownInterruptsWhatOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{Base: base})
		require.NoError(t, err)
		base.always(verdictHang)
		call := make(chan error, 1)
		go func() { _, err := c.Do(verdictNamed("n")); call <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Shutdown(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, <-call, idem.ErrClosed)
	})
}
