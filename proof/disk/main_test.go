package disk

import (
	"testing"

	"github.com/idem-go/idem/proof/rig"
)

func TestMain(m *testing.M) { rig.Run(m) }
