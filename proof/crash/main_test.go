package crash

import (
	"os"
	"testing"

	"github.com/idem-go/idem/proof/rig"
)

// TestMain is also the entry of the processes that tests start to let them die.
func TestMain(m *testing.M) {
	if job := os.Getenv(jobEnv); job != "" {
		os.Exit(childLife(job))
	}
	rig.Run(m)
}
