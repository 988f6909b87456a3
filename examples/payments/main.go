// Command payments pays a file of payments once, however often it is run.
//
//	go run ./examples/payments
//
// pays payments.csv to a mock server inside the program, one that loses answers.
// Run it again, or interrupt it and then run it again: what was paid is recalled
// from the journal without network, what was under way goes on under its first
// key. To pay somewhere else, to anything that honours the Idempotency-Key header:
//
//	go run ./examples/payments -url http://127.0.0.1:8080/payments -file mine.csv
//
// The file has a line for each payment, id,payee,amount,currency. The id is the
// payment's name: two lines with one id are one payment, and a line that changes
// under its id is refused. Delete the journal, payments.db, and the program no
// longer knows what it paid.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

//go:embed payments.csv
var payments []byte

func main() {
	url := flag.String("url", "", "where payments are posted; default a mock inside the program")
	file := flag.String("file", "", "the payments; default those of the repository")
	journal := flag.String("journal", "payments.db", "the journal")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *url, *file, *journal); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, url, file, journal string) error {
	opts := &idem.Options{Scope: "bank"}
	if url == "" {
		mock := newMock()
		defer mock.Close()
		url, opts.Base = mock.URL+"/payments", mock.Transport()
	}
	rows, err := read(file)
	if err != nil {
		return err
	}
	client, err := idem.Open(journal, opts)
	if err != nil {
		return err
	}
	return errors.Join(payAll(ctx, out, client, url, rows), client.Close())
}

// payAll pays row by row, and says of each whether it happened.
func payAll(ctx context.Context, out io.Writer, client *idem.Client, url string, rows [][]string) error {
	if _, err := client.Resume(ctx, nil); err != nil { // what an earlier run has left
		return err
	}
	var done, recalled, open int
	for _, row := range rows {
		resp, err := pay(ctx, client, url, row)
		switch idem.FateOf(resp, err) {
		case idem.FateDone:
			done++
			if r, _ := idem.ResultOf(resp); r.Recalled {
				recalled++
			}
		case idem.FateNotDone:
			open++
			fmt.Fprintf(out, "%s: not paid: %s\n", row[0], reason(resp, err))
		default:
			open++
			fmt.Fprintf(out, "%s: may be paid; the next run finds out: %s\n", row[0], reason(resp, err))
		}
	}
	fmt.Fprintf(out, "%d paid, %d of them by an earlier run\n", done, recalled)
	if open > 0 {
		return fmt.Errorf("%d of %d payments are open: run it again", open, len(rows))
	}
	return nil
}

// pay names the call after the payment. That is all it takes.
func pay(ctx context.Context, client *idem.Client, url string, row []string) (*http.Response, error) {
	body, err := json.Marshal(map[string]string{"id": row[0], "payee": row[1], "amount": row[2], "currency": row[3]})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(idem.WithIntent(ctx, row[0]), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

func reason(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	return resp.Status
}

func read(file string) ([][]string, error) {
	text := payments
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.FieldsPerRecord = 4
	rows, err := in.ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || rows[0][0] != "id" {
		return nil, errors.New("the payments have no line id,payee,amount,currency at their top")
	}
	return rows[1:], nil
}

// newMock loses one answer in fifty.
func newMock() *mockserver.Server {
	return mockserver.New(&mockserver.Config{
		Rate:   0.02,
		Seed:   1,
		Faults: []mockserver.Fault{{Kind: mockserver.FaultDrop}, {Kind: mockserver.FaultReset}},
	})
}
