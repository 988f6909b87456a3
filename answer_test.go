package idem_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func TestAnAnswerThatArrivesWithTheCancelIsRecorded(t *testing.T) {
	for _, status := range []int{201, 402} {
		ctx, cancel := context.WithCancel(idNamed("n"))
		idBubble(t, func(o *idem.Options) {
			o.Base = idBase(func(r *http.Request) (*http.Response, error) {
				cancel()
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), ContentLength: 2, Request: r}, nil
			})
		}, func(t *testing.T, b *idBench) {
			resp, r, err := b.do(ctx, `{"id":"o1"}`)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			e, err := b.c.Lookup(context.Background(), "n")
			require.NoError(t, err)
			require.Equal(t, idem.StateSettled, e.State)
			require.Equal(t, r.Fate, e.Fate)
		})
	}
}

func TestAHeadThatArrivesWithTheCancelIsRecordedAsDone(t *testing.T) {
	var cancel context.CancelFunc
	var inner http.RoundTripper
	idBubble(t, func(o *idem.Options) {
		inner = o.Base
		o.Base = idBase(func(r *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(r)
			if cancel != nil {
				cancel() // the body ends with its request
				cancel = nil
			}
			return resp, err
		})
	}, func(t *testing.T, b *idBench) {
		ctx, stop := context.WithCancel(idNamed("n"))
		cancel = stop
		_, r, err := b.do(ctx, `{"id":"o1"}`)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, idem.FateDone, r.Fate)
		require.Len(t, b.open(), 1)
		require.Equal(t, idem.FateDone, b.open()[0].Fate)
		_, r, err = b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.True(t, r.Replayed)
		require.Equal(t, 1, b.srv.Effects("o1"))
	})
}

func TestACancelAfterTheAnswerKeepsItFromNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(idNamed("n"))
	idBubble(t, func(o *idem.Options) {
		o.Trace = &idem.Trace{Attempt: func(context.Context, idem.AttemptInfo) { cancel() }}
	}, func(t *testing.T, b *idBench) {
		_, _, err := b.do(ctx, `{"id":"o1"}`)
		require.NoError(t, err)
		_, r, err := b.do(ctx, `{"id":"o1"}`)
		require.NoError(t, err, "what the journal has outweighs a cancel")
		require.True(t, r.Recalled)
	})
}

func TestACancelIsFoundWithItsCause(t *testing.T) {
	errWhy := errors.New("the customer left")
	for _, attempts := range []int{1, 6} {
		for name, fault := range map[string]mockserver.Fault{
			"in flight":   {Kind: mockserver.FaultHang},
			"backing off": {Kind: mockserver.FaultStatus, Status: 503, Times: -1},
			"refused":     {Kind: mockserver.FaultRefuse, Times: -1},
		} {
			if attempts == 1 && name != "in flight" {
				continue // over before the cancel
			}
			t.Run(name, func(t *testing.T) {
				idBubble(t, func(o *idem.Options) { o.Retry.MaxAttempts = attempts }, func(t *testing.T, b *idBench) {
					b.srv.Script(fault)
					ctx, cancel := context.WithCancelCause(idNamed("n"))
					time.AfterFunc(100*time.Millisecond, func() { cancel(errWhy) })
					_, r, err := b.do(ctx, `{"id":"o1"}`)
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorIs(t, err, errWhy)
					require.NotErrorIs(t, err, idem.ErrExhausted, "the caller's end is not the policy's")
					var e *idem.Error
					require.ErrorAs(t, err, &e)
					require.False(t, e.Timeout())
					require.Equal(t, name == "refused", r.Fate == idem.FateNotDone)
				})
			})
		}
	}
}

func TestADeadlineIsATimeout(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"in flight":   {Kind: mockserver.FaultHang},
		"backing off": {Kind: mockserver.FaultStatus, Status: 503, Times: -1},
	} {
		t.Run(name, func(t *testing.T) {
			idBubble(t, nil, func(t *testing.T, b *idBench) {
				b.srv.Script(fault)
				ctx, cancel := context.WithTimeout(idNamed("n"), 200*time.Millisecond)
				defer cancel()
				_, _, err := b.do(ctx, `{"id":"o1"}`)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var e *idem.Error
				require.ErrorAs(t, err, &e)
				require.True(t, e.Timeout())
				require.LessOrEqual(t, len(b.srv.Requests()), 1)
			})
		})
	}
}

func TestABodyOverMaxResultIsHandedOverWholeAndRecalledWithout(t *testing.T) {
	long := strings.Repeat("0123456789", 100)
	for _, status := range []int{200, 422} {
		work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); _, _ = io.WriteString(w, long) })
		idBubbleOf(t, &mockserver.Config{Handler: work}, func(o *idem.Options) { o.MaxResult = 100 }, func(t *testing.T, b *idBench) {
			resp, was, err := b.do(idNamed("n"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.Equal(t, long, idBodyOf(t, resp))
			resp, is, err := b.do(idNamed("n"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
			require.True(t, is.Recalled)
			require.True(t, is.Trimmed)
			require.Equal(t, was.Fate, is.Fate)
			n, err := resp.Body.Read(make([]byte, 10))
			require.Zero(t, n)
			require.ErrorIs(t, err, idem.ErrBodyTooLarge)
			_, err = idem.JSON[any](b.c.Do(idPost(idNamed("n"), `{"id":"o1"}`)))
			require.Error(t, err)
			require.Equal(t, was.Fate, idem.FateOf(nil, err))

			anonymous, _, err := b.do(context.Background(), `{"id":"o2"}`)
			require.NoError(t, err)
			require.Equal(t, long, idBodyOf(t, anonymous))
			require.Empty(t, b.open())
		})
	}
}

func TestABodyOfExactlyMaxResultIsKept(t *testing.T) {
	work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 100)) })
	idBubbleOf(t, &mockserver.Config{Handler: work}, func(o *idem.Options) { o.MaxResult = 100 }, func(t *testing.T, b *idBench) {
		for range 2 {
			resp, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
			require.NoError(t, err)
			require.False(t, r.Trimmed)
			require.Len(t, idBodyOf(t, resp), 100)
		}
	})
}

func TestALongBodyOverARealConnectionIsHandedOverWhole(t *testing.T) {
	long := strings.Repeat("0123456789", 100_000)
	srv := mockserver.Start(t, &mockserver.Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, long) })})
	c, err := idem.Open(t.TempDir()+"/journal.db", &idem.Options{MaxResult: 100})
	require.NoError(t, err)
	defer c.Close()
	req, err := http.NewRequestWithContext(idNamed("n"), "POST", srv.URL, strings.NewReader("{}"))
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	require.Equal(t, long, idBodyOf(t, resp))
}

func TestAStreamOfEventsIsSettledAtItsHeadAndPassedThrough(t *testing.T) {
	idBubble(t, func(o *idem.Options) {
		o.Base = idBase(func(r *http.Request) (*http.Response, error) {
			reader, writer := io.Pipe()
			go func() {
				time.Sleep(time.Hour) // longer than any attempt
				_, _ = io.WriteString(writer, "data: 1\n\n")
				writer.Close()
			}()
			h := http.Header{"Content-Type": {"Text/Event-Stream; charset=utf-8"}}
			return &http.Response{StatusCode: 200, Header: h, ContentLength: -1, Request: r,
				Body: &idStream{Reader: reader, ctx: r.Context()}}, nil
		})
	}, func(t *testing.T, b *idBench) {
		resp, r, err := b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.Equal(t, idem.FateDone, r.Fate)
		e, err := b.c.Lookup(context.Background(), "n")
		require.NoError(t, err)
		require.Equal(t, idem.StateSettled, e.State, "though no byte of the body has come")
		require.Equal(t, "data: 1\n\n", idBodyOf(t, resp))
		resp, r, err = b.do(idNamed("n"), `{"id":"o1"}`)
		require.NoError(t, err)
		require.True(t, r.Recalled)
		_, err = resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, idem.ErrBodyTooLarge)
	})
}

// idStream is a body that ends with its request's context.
type idStream struct {
	io.Reader
	ctx context.Context
}

func (s *idStream) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.Reader.Read(p)
}

func (s *idStream) Close() error { return nil }

type idCharge struct {
	ID       string `json:"id"`
	Resource string `json:"resource"`
}

func TestJSONDecodesAnAnswerAndTurnsTheRestIntoErrors(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		fate       idem.Fate
		ok         bool
	}{
		{"decodes", `{"id":"o1"}`, 200, idem.FateDone, true},
		{"empty", ``, 200, idem.FateDone, true},
		{"refusal", `{"error":"funds"}`, 402, idem.FateNotDone, false},
		{"at the door", `{"error":"who"}`, 401, idem.FateNotDone, false},
		{"not JSON", `<html>`, 200, idem.FateDone, false},
		{"another type", `[1]`, 200, idem.FateDone, false},
		{"two values", `{"id":"o1"} {"id":"o2"}`, 200, idem.FateDone, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			idBubbleOf(t, &mockserver.Config{Handler: work}, nil, func(t *testing.T, b *idBench) {
				got, err := idem.JSON[idCharge](b.c.Do(idPost(idNamed("n"), `{"id":"o1"}`)))
				if c.ok {
					require.NoError(t, err)
					require.Equal(t, c.body != "", got.ID == "o1")
					return
				}
				require.Zero(t, got)
				var e *idem.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, c.fate, e.Fate)
				require.Equal(t, c.fate, idem.FateOf(nil, err))
				require.Equal(t, "n", e.Intent)
				require.NotEmpty(t, e.Key)
				require.Equal(t, c.status, e.Response.StatusCode)
				require.Equal(t, c.body, idBodyOf(t, e.Response))
			})
		})
	}
	_, err := idem.JSON[int](nil, io.EOF)
	require.Equal(t, io.EOF, err)
}

func TestForeignValuesHaveNoFateAndNoResult(t *testing.T) {
	foreign := &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(nil)), Request: idPost(idNamed("n"), "")}
	for _, resp := range []*http.Response{nil, {}, foreign} {
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, nil))
		require.Equal(t, idem.FateUnknown, idem.FateOf(resp, io.EOF))
		_, ok := idem.ResultOf(resp)
		require.False(t, ok)
	}
	_, err := idem.JSON[int](&http.Response{StatusCode: 500, Body: http.NoBody}, nil)
	require.Equal(t, idem.FateUnknown, idem.FateOf(nil, err))
	wrapped := errors.Join(io.EOF, &idem.Error{Fate: idem.FateDone})
	require.Equal(t, idem.FateDone, idem.FateOf(nil, wrapped))
}
