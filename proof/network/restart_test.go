package network

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

// restarted is a provider whose process ends while requests are under way, some of which
// have taken effect, and begins again at its address. Its keys are kept in a database.
type restarted struct {
	*mockserver.Server
	addr string
	at   int // the request at which it ends

	mu      sync.Mutex
	arrived int
	life    *http.Server
	served  sync.WaitGroup
}

func (s *restarted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.arrived++
	ends := s.arrived == s.at
	s.mu.Unlock()
	s.Server.ServeHTTP(w, r)
	if ends {
		go s.restart()
		<-r.Context().Done() // the answer is lost with the process
		panic(http.ErrAbortHandler)
	}
}

func (s *restarted) start(t *testing.T) {
	t.Helper()
	require.NoError(t, s.listen())
	t.Cleanup(func() {
		s.mu.Lock()
		_ = s.life.Close()
		s.mu.Unlock()
		s.served.Wait()
		s.Close()
	})
}

func (s *restarted) listen() error {
	addr := s.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr().String()
	life := &http.Server{Handler: s, ErrorLog: quiet}
	s.life = life
	s.served.Go(func() { _ = life.Serve(l) })
	return nil
}

// restart is a kill: all connections end, and the address refuses for a while.
func (s *restarted) restart() {
	s.mu.Lock()
	_ = s.life.Close()
	s.mu.Unlock()
	s.Restart(true)
	for s.listen() != nil {
		time.Sleep(time.Millisecond)
	}
}

func TestAServerThatRestartsUnderItsCallsActsOnce(t *testing.T) {
	r := seeded(t)
	for range 5 {
		srv := &restarted{Server: mockserver.New(nil), at: 1 + r.IntN(20)}
		srv.start(t)
		c := openClient(t, journalPath(t), options(nil))
		names := numbered(20)
		fates := payAll(t, c, srv.Server, "http://"+srv.addr, names, 100)
		_, err := c.Resume(context.Background(), nil)
		require.NoError(t, err)
		again := payAll(t, c, srv.Server, "http://"+srv.addr, names, 100)
		require.Equal(t, map[idem.Fate]int{idem.FateDone: len(names)}, again)
		audit(t, srv.Server, names...)
		t.Logf("ended at request %d; %v", srv.at, fates)
	}
}
