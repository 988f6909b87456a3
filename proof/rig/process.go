package rig

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Seed is IDEM_SEED, or new; it is printed, so that a failure can be repeated as far as
// a kill can.
func Seed(t testing.TB) uint64 {
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

// FastDir returns a directory in memory where there is one: tests that open hundreds of
// journals needn't wait for a disk.
func FastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "idem")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Run is a TestMain: the run fails if a goroutine of the library outlives the tests.
func Run(m *testing.M) {
	code := m.Run()
	if left := leakedGoroutines(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leakedGoroutines waits for goroutines to end, and returns the stacks of those that
// don't.
func leakedGoroutines() string {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	var left string
	for range 100 {
		buf := make([]byte, 4<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = ""
		for _, g := range strings.Split(string(buf), "\n\n")[1:] {
			if strings.Contains(g, "idem-go/idem") || strings.Contains(g, "net/http.") || strings.Contains(g, "bbolt.") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return left
}
