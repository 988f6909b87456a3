package main

import (
	"encoding/json"
	"io"
	"sync"
)

// event is a line that a worker writes: one payment is through, or all are.
type event struct {
	Paid string `json:"paid,omitempty"` // the payment's id
	Over bool   `json:"over,omitempty"`

	// Of the soak alone.
	Begun   string `json:"begun,omitempty"`   // a payment without name or key is about to be made
	Refused string `json:"refused,omitempty"` // a payment is NotDone for good
}

// events writes them, whole lines only, from many goroutines.
type events struct {
	mu  sync.Mutex
	out io.Writer
}

func (e *events) send(v event) {
	line, err := json.Marshal(v)
	if err != nil {
		panic("idem: internal error: " + err.Error()) // a string and a bool always encode
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out.Write(append(line, '\n'))
}

// parseEvent reads a line; false for one that a kill cut off.
func parseEvent(line string) (event, bool) {
	var v event
	return v, json.Unmarshal([]byte(line), &v) == nil
}
