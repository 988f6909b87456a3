package tap_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/tap"
)

var errLost = errors.New("some transport gave up")

// listener is the address of a server that never answers.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// counted is a connection of our transport's.
func counted(t *testing.T) net.Conn {
	t.Helper()
	conn, err := tap.NewTransport().DialContext(t.Context(), "tcp", listener(t).Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// handed is a spy on an attempt that was handed these connections, whose end is ctx's.
func handed(t *testing.T, late error, conns ...net.Conn) (spy *tap.Spy, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	spy = &tap.Spy{Cancel: cancel, Late: func() error { return late }, Sent: func() {}}
	for _, conn := range conns {
		spy.Trace().GotConn(httptrace.GotConnInfo{Conn: conn})
	}
	require.Equal(t, len(conns), spy.Conns())
	return spy, ctx
}

func TestSilenceProvesNothing(t *testing.T) {
	spy, _ := handed(t, nil)
	require.False(t, spy.NeverSent(errLost))
}

func TestARefusedDialIsProof(t *testing.T) {
	l := listener(t)
	require.NoError(t, l.Close())
	spy, ctx := handed(t, nil)
	req, err := http.NewRequest(http.MethodPost, "http://"+l.Addr().String(), nil)
	require.NoError(t, err)
	_, err = tap.NewTransport().RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, spy.Trace())))
	require.True(t, spy.NeverSent(err))
	require.False(t, spy.NeverSent(errLost), "a failed dial alone doesn't: another address may have answered")
	silent, _ := handed(t, nil)
	require.True(t, silent.NeverSent(err), "the type of the error is proof")
}

func TestOnlyAClosedConnectionOfOursThatWroteNothingIsProof(t *testing.T) {
	conn := counted(t)
	_, err := conn.Write([]byte("the request before")) // what an earlier attempt wrote doesn't count
	require.NoError(t, err)
	spy, _ := handed(t, nil, conn)
	require.False(t, spy.NeverSent(errLost), "it is open: a byte may still leave")
	require.NoError(t, conn.Close())
	require.True(t, spy.NeverSent(errLost))

	wrote := counted(t)
	spy, _ = handed(t, nil, wrote)
	_, err = wrote.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, wrote.Close())
	require.False(t, spy.NeverSent(errLost))

	foreign, err := net.Dial("tcp", listener(t).Addr().String())
	require.NoError(t, err)
	spy, _ = handed(t, nil, foreign)
	require.NoError(t, foreign.Close())
	require.False(t, spy.NeverSent(errLost), "nobody counted")
}

func TestALateOrSecondConnectionEndsTheAttemptBeforeItWrites(t *testing.T) {
	late := errors.New("too late")
	spy, ctx := handed(t, late, counted(t))
	require.ErrorIs(t, context.Cause(ctx), late)
	require.True(t, spy.NeverSent(errLost))

	first, second := counted(t), counted(t)
	spy, ctx = handed(t, nil, first, second)
	require.Error(t, context.Cause(ctx))
	require.False(t, spy.NeverSent(errLost), "the first is open")
	_, err := second.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
}
