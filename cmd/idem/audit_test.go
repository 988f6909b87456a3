package main

import "testing"

// Ensure that the audit sees each way in which a ledger can differ from the file.
func TestCheck(t *testing.T) {
	rows := []payment{{"a", "A Ltd", 100, "EUR"}, {"b", "B Ltd", 250, "USD"}}
	a, b := made{"a", 100, "EUR"}, made{"b", 250, "USD"}
	tests := []struct {
		name                             string
		made                             []made
		once, twice, lost, wrong, eurDue int
	}{
		{"as written", []made{a, b}, 2, 0, 0, 0, 100},
		{"twice", []made{a, b, a}, 1, 1, 0, 0, 200},
		{"lost", []made{b}, 1, 0, 1, 0, 0},
		{"another amount", []made{{"a", 101, "EUR"}, b}, 2, 0, 0, 1, 101},
		{"another currency", []made{a, {"b", 250, "EUR"}}, 2, 0, 0, 1, 350},
		{"foreign", []made{a, b, {"c", 1, "EUR"}}, 2, 0, 0, 1, 101},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := ledger{Made: tt.made, Effects: map[string]int{"a": 0, "b": 0}}
			for _, m := range tt.made {
				l.Effects[m.ID]++
			}
			got, err := check(rows, l)
			if err != nil {
				t.Fatal(err)
			}
			if got.Once != tt.once || got.Twice != tt.twice || got.Lost != tt.lost || got.wrong() != tt.wrong || got.Made["EUR"] != int64(tt.eurDue) {
				t.Errorf("got %+v", got)
			}
			if got.clean() != (tt.name == "as written") {
				t.Errorf("clean() = %v", got.clean())
			}
		})
	}
}

// Ensure that a ledger whose two counts differ isn't believed.
func TestCheckOfDisagreeingCounts(t *testing.T) {
	rows := []payment{{"a", "A Ltd", 100, "EUR"}}
	if _, err := check(rows, ledger{Made: []made{{"a", 100, "EUR"}}, Effects: map[string]int{"a": 2}}); err == nil {
		t.Error("no error")
	}
}

// Ensure that kills are spread over the way and repeat with their seed.
func TestPlanKills(t *testing.T) {
	plan, again := planKills(9, 6, 300), planKills(9, 6, 300)
	for i, k := range plan {
		if k.after < i*50 || k.after >= (i+1)*50 || k.delay < 0 || k.delay >= maxKillDelay || k != again[i] {
			t.Errorf("kill %d: %+v, again %+v", i, k, again[i])
		}
	}
}

// Ensure that a file which is repeated has ids of its own for each round.
func TestTake(t *testing.T) {
	rows := []payment{{ID: "a"}, {ID: "b"}}
	got := ""
	for _, p := range take(rows, 5) {
		got += p.ID + " "
	}
	if got != "a b a-2 b-2 a-3 " {
		t.Errorf("got %q", got)
	}
}

// Ensure that money is written as people read it.
func TestGrouped(t *testing.T) {
	for cents, want := range map[int64]string{0: "0.00", 5: "0.05", 99999: "999.99", 100000: "1,000.00", 123456789: "1,234,567.89", -123456: "-1,234.56", -12345: "-123.45"} {
		if got := grouped(cents); got != want {
			t.Errorf("grouped(%d) = %q, want %q", cents, got, want)
		}
	}
}
