package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// A leader that gives up with nothing sent must not say NotDone to a caller while
// another one waits for the entry.
func TestAWaiterWithTimeLeftTakesOverWhatItsLeaderGivesUp(t *testing.T) {
	now := time.Now
	leaders := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		},
		"expired": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return idem.WithExpiry(ctx, now().Add(5*time.Second)), func() {}
		},
	}
	for name, leader := range leaders {
		t.Run(name, func(t *testing.T) {
			retry := idem.RetryPolicy{MaxAttempts: 10, BaseDelay: 2 * time.Second, MaxDelay: 2 * time.Second}
			inResumeWorld(t, idem.Options{Retry: retry}, func(t *testing.T, w *resumeWorld) {
				w.srv.Script(mockserver.Fault{Kind: mockserver.FaultRefuse, Times: -1})
				first, second := make(chan error, 1), make(chan error, 1)
				go func() {
					ctx, cancel := leader(resumeNamed("a"))
					defer cancel()
					_, err := w.c.Do(resumeReq(ctx, "a"))
					first <- err
				}()
				synctest.Wait()
				go func() { _, err := w.do("a"); second <- err }()
				synctest.Wait()
				err := <-first
				require.Equal(t, idem.FateUnknown, resumeError(t, err).Fate)
				w.srv.Heal()
				require.NoError(t, <-second)
				require.Equal(t, 1, w.srv.Effects("a"))
			})
		})
	}
}

func TestResumeAndRunAndDoTogetherSendOnce(t *testing.T) {
	inResumeWorld(t, idem.Options{}, func(t *testing.T, w *resumeWorld) {
		names := []string{"a", "b", "c", "d", "e"}
		w.lose(names...)
		w.srv.Script(mockserver.Fault{Kind: mockserver.FaultDelay, Delay: 3 * time.Second, Times: -1})
		stop := w.run()
		done := make(chan error, 3*len(names))
		for range 2 {
			for _, name := range names {
				go func() { _, err := w.do(name); done <- err }()
			}
		}
		report, err := w.c.Resume(context.Background(), nil)
		require.NoError(t, err)
		require.Zero(t, report.Unknown+report.NotDone)
		for range 2 * len(names) {
			require.NoError(t, <-done)
		}
		require.NoError(t, stop())
		require.Equal(t, 2*len(names), w.sent())
		for _, name := range names {
			require.Equal(t, 1, w.srv.Effects(name))
		}
	})
}
