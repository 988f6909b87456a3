package main

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// payment is one row of a payments file.
type payment struct {
	ID       string
	Payee    string
	Cents    int64 // money is counted, never measured: no floats
	Currency string
}

// paymentHeader is the first line of a payments file.
var paymentHeader = []string{"id", "payee", "amount", "currency"}

// defaultFile is where the repository keeps its payments.
var defaultFile = filepath.Join("examples", "payments", "payments.csv")

// wire is a payment as the provider takes it.
type wire struct {
	ID       string `json:"id"`
	Payee    string `json:"payee"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

func (p payment) body() []byte {
	b, err := json.Marshal(wire{p.ID, p.Payee, formatCents(p.Cents), p.Currency})
	if err != nil {
		panic("idem: internal error: " + err.Error()) // four strings always encode
	}
	return b
}

// findPayments returns the file that the user named, or the repository's own,
// which it looks for from the working directory upwards.
func findPayments(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, defaultFile)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s in %s or above: run inside the repository, or name a file with --file", defaultFile, start)
		}
	}
}

// readPayments reads a file and refuses what can't be audited later: a bad
// amount, an id that stands there twice.
func readPayments(path string) ([]payment, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := parsePayments(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

func parsePayments(r io.Reader) ([]payment, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = len(paymentHeader)
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("is empty")
	}
	if err != nil {
		return nil, err
	}
	if strings.Join(head, ",") != strings.Join(paymentHeader, ",") {
		return nil, fmt.Errorf("line 1: want the header %s", strings.Join(paymentHeader, ","))
	}
	var rows []payment
	seen := map[string]int{}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := in.FieldPos(0)
		p, err := parsePayment(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if first, twice := seen[p.ID]; twice {
			return nil, fmt.Errorf("line %d: id %q stands on line %d already", line, p.ID, first)
		}
		seen[p.ID] = line
		rows = append(rows, p)
	}
	if len(rows) == 0 {
		return nil, errors.New("has no payments")
	}
	return rows, nil
}

var currencyForm = regexp.MustCompile(`\A[A-Z]{3}\z`)

func parsePayment(fields []string) (payment, error) {
	p := payment{ID: fields[0], Payee: fields[1], Currency: fields[3]}
	if p.ID == "" {
		return p, errors.New("the id is empty")
	}
	if !currencyForm.MatchString(p.Currency) {
		return p, fmt.Errorf("currency %q is not three capital letters", p.Currency)
	}
	var err error
	p.Cents, err = parseCents(fields[2])
	return p, err
}

var amountForm = regexp.MustCompile(`\A[0-9]{1,12}\.[0-9]{2}\z`)

// parseCents reads "12.34" as 1234.
func parseCents(s string) (int64, error) {
	if !amountForm.MatchString(s) {
		return 0, fmt.Errorf("amount %q is not a number with two decimals", s)
	}
	return strconv.ParseInt(strings.Replace(s, ".", "", 1), 10, 64)
}

// formatCents writes 1234 as "12.34".
func formatCents(c int64) string {
	sign := ""
	if c < 0 {
		sign, c = "-", -c
	}
	return fmt.Sprintf("%s%d.%02d", sign, c/100, c%100)
}

// take returns the first n payments; where the file has fewer, it begins again,
// under ids of their own. 0 is the whole file.
func take(rows []payment, n int) []payment {
	if n == 0 {
		return rows
	}
	out := make([]payment, 0, n)
	for i := range n {
		p := rows[i%len(rows)]
		if round := i / len(rows); round > 0 {
			p.ID = fmt.Sprintf("%s-%d", p.ID, round+1)
		}
		out = append(out, p)
	}
	return out
}

// writePayments writes a file that readPayments reads.
func writePayments(path string, rows []payment) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := csv.NewWriter(f)
	err = out.Write(paymentHeader)
	for _, p := range rows {
		err = errors.Join(err, out.Write([]string{p.ID, p.Payee, formatCents(p.Cents), p.Currency}))
	}
	out.Flush()
	return errors.Join(err, out.Error(), f.Close())
}
