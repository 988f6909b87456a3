package idem_test

import (
	"os"
	"path/filepath"
	"regexp"
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

func TestTheTestsThatTheBatchDocumentNamesExist(t *testing.T) {
	doc, err := os.ReadFile("docs/batches.md")
	require.NoError(t, err)
	exists := map[string]bool{}
	for _, pattern := range []string{"*_test.go", "proof/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
				exists[m[1]] = true
			}
		}
	}
	names := regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(doc), -1)
	require.Greater(t, len(names), 30)
	for _, n := range names {
		require.True(t, exists[n[1]], "there is no %s", n[1])
	}
}

// Documents name source files; they must follow when those move.
func TestTheFilesThatDocumentsNameExist(t *testing.T) {
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("docs/adr/*.md")
	require.NoError(t, err)
	documents = append(append(documents, decisions...), "README.md", "CONTRIBUTING.md", "SECURITY.md")
	fileName := regexp.MustCompile("[`(]([A-Za-z0-9_./-]+\\.go)[`):]")
	named := 0
	for _, doc := range documents {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range fileName.FindAllStringSubmatch(string(text), -1) {
			named++
			file := m[1]
			if strings.HasPrefix(file, "../") {
				file = filepath.Join(filepath.Dir(doc), file)
			}
			_, err := os.Stat(file)
			require.NoError(t, err, "%s names %s", doc, m[1])
		}
	}
	require.Greater(t, named, 10)
}
