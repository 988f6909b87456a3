package idem_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheCodeOfTheREADMEIsTheExampleThatCompiles(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	block, _, _ = strings.Cut(block, "```")
	require.Contains(t, strings.ReplaceAll(string(example), "\n\t", "\n"), block)
}
