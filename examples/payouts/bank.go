package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/idem-go/idem/mockserver"
)

// bank is a provider on loopback, so that it outlives the children.
type bank struct {
	*mockserver.Server
	url  string
	http *http.Server
}

// openBank has a bad day: of ten calls three go wrong, and one item in five.
func openBank(seed uint64) (*bank, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	api := mockserver.New(&mockserver.Config{
		Seed: seed, Rate: 0.3,
		Faults: []mockserver.Fault{
			{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultReset}, {Kind: mockserver.FaultReset, After: true}, {Kind: mockserver.FaultCut},
			{Kind: mockserver.FaultStatus, Status: http.StatusServiceUnavailable},
			{Kind: mockserver.FaultDelay, Delay: 40 * time.Millisecond, Weight: 3},
		},
		Batch: &mockserver.Batch{
			Seed: seed, Rate: 0.2, Shuffle: true, Status: http.StatusMultiStatus,
			Outcomes: []mockserver.ItemOutcome{
				mockserver.ItemThrottle, mockserver.ItemBreak, mockserver.ItemBreakAfter, mockserver.ItemLose,
				mockserver.ItemSkip, mockserver.ItemTwice, mockserver.ItemRefuse,
			},
		},
	})
	b := &bank{api, "http://" + l.Addr().String() + "/payouts", &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}}
	go b.http.Serve(l)
	return b, nil
}

func (b *bank) close() {
	b.http.Close()
	b.Server.Close()
}

// audit holds the bank's ledger against the file, and what the last child said against
// both.
func audit(out io.Writer, b *bank, rows [][]string, s *said) error {
	b.Wait()
	var wrong []error
	count := map[string]int{}
	for _, row := range rows {
		id := row[0]
		effects, word := b.Effects(id), s.fate[id]
		count[word]++
		switch {
		case effects > 1:
			wrong = append(wrong, fmt.Errorf("audit: %s was paid %d times", id, effects))
		case word == "done" && effects == 0:
			wrong = append(wrong, fmt.Errorf("audit: %s is lost: the program says it was paid", id))
		case word == "refused" && effects == 1:
			wrong = append(wrong, fmt.Errorf("audit: %s was paid, and the program says it was refused", id))
		case word == "":
			wrong = append(wrong, fmt.Errorf("audit: nothing was said of %s", id))
		}
		if keys := b.ItemKeys(id); len(keys) > 1 {
			wrong = append(wrong, fmt.Errorf("audit: %s was sent under %d keys", id, len(keys)))
		}
	}
	fmt.Fprintf(out, "%d payouts: %d paid once, %d refused, %d open for a person to look at; %d requests, %d items sent\n",
		len(rows), count["done"], count["refused"], count["open"], len(b.Requests()), len(b.Items()))
	return errors.Join(wrong...)
}
