package idem_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run if a goroutine of ours outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leakedGoroutines(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leakedGoroutines waits for goroutines to end, and returns the stacks of those
// that don't.
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
