package dialect_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run if a goroutine of ours outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := providerLeaks(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n\n"+left)
		code = 1
	}
	os.Exit(code)
}

// providerLeaks waits for goroutines to end, and returns the stacks of those that
// don't.
func providerLeaks() string {
	var left string
	for range 100 {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left = ""
		for _, g := range strings.Split(string(buf), "\n\n")[1:] {
			if strings.Contains(g, "idem-go/idem") {
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
