package model

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	attackRow  = regexp.MustCompile(`(?m)^\| (\d+) \|.*$`)
	testName   = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	quotedRule = regexp.MustCompile(`"([^"]* [^"]*)"`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
)

// Every attack in docs/reliability.md is met by a test that exists, or by a rule that
// the model has, and none is left out.
func TestEveryAttackHasItsTestOrRule(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, rules := sources(t)
	rows := attackRow.FindAllStringSubmatch(string(doc), -1)
	for i, row := range rows {
		if n, _ := strconv.Atoi(row[1]); n != i+1 {
			t.Errorf("row %d is attack %s", i+1, row[1])
		}
		cells := strings.Split(row[0], "|")
		names := testName.FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("attack %s names no test", row[1])
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("attack %s: there is no %s", row[1], name[1])
			}
		}
		for _, rule := range quotedRule.FindAllStringSubmatch(cells[3], -1) {
			if rule[1] != "What it can't" && !strings.Contains(rules, `"`+rule[1]+`"`) {
				t.Errorf("attack %s: the model has no rule %q", row[1], rule[1])
			}
		}
	}
	if len(rows) != 36 {
		t.Errorf("%d attacks, not 36", len(rows))
	}
}

// sources are the names of all tests of the repository, and the model's text.
func sources(t *testing.T) (tests map[string]bool, rules string) {
	t.Helper()
	tests = map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllStringSubmatch(string(b), -1) {
			tests[f[1]] = true
		}
		if name := filepath.Base(path); filepath.Base(filepath.Dir(path)) == "model" && name != "attacks_test.go" {
			rules += string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, rules
}
