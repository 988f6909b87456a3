// Command failover pays the rent at one of two banks, and is killed on the way.
//
//	go run ./examples/failover
//
// The program starts itself three times as a child. The first child is killed between
// the two banks; the second when the second bank has paid, before it could write that
// down; the third runs to its end. When it starts, the first bank is back and would pay
// at once. Only the second one is asked, for it may have paid.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/mockserver"
)

func main() {
	if isChild() {
		os.Exit(child(context.Background(), os.Stdout))
	}
	dir, err := os.MkdirTemp("", "failover")
	if err == nil {
		err = run(context.Background(), os.Stdout, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

// bank is a provider on loopback, so that it outlives the children.
type bank struct {
	*mockserver.Server
	url  string
	http *http.Server
}

func openBank() (*bank, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	api := mockserver.New(nil)
	b := &bank{api, "http://" + l.Addr().String() + "/transfers", &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}}
	go b.http.Serve(l)
	return b, nil
}

func (b *bank) close() {
	b.http.Close()
	b.Server.Close()
}

// life is one start of the program: where it is killed, and what has been paid then.
type life struct {
	story, dieAt string
	north, south int
}

var lives = []life{
	{"1. North refuses. Killed before South is asked.", "north ended", 0, 0},
	{"2. North refuses. South pays. Killed before that is written down.", "south answered", 0, 1},
	{"3. North is back. South is asked again, under the same key.", "", 0, 1},
}

func run(ctx context.Context, out io.Writer, dir string) error {
	north, err := openBank()
	if err != nil {
		return err
	}
	defer north.close()
	south, err := openBank()
	if err != nil {
		return err
	}
	defer south.close()
	north.Script(mockserver.Fault{Kind: mockserver.FaultStatus, Status: http.StatusForbidden, Times: 2})
	for i, l := range lives {
		said, err := start(ctx, filepath.Join(dir, "rent.db"), l.dieAt, north.url, south.url)
		fmt.Fprintf(out, "%s\n%s", l.story, said)
		if died := err != nil; died != (l.dieAt != "") {
			return fmt.Errorf("audit: life %d ended otherwise than it should: %v", i+1, err)
		}
		if n, s := north.Effects("rent-may"), south.Effects("rent-may"); n != l.north || s != l.south {
			return fmt.Errorf("audit: after life %d North has paid %d times and South %d", i+1, n, s)
		}
	}
	if keys, asked := len(south.Keys("rent-may")), len(north.Requests()); keys != 1 || asked != 2 {
		return fmt.Errorf("audit: South saw %d keys, North was asked %d times", keys, asked)
	}
	fmt.Fprintln(out, "The rent is paid once.")
	return nil
}

// start runs the program as a child until it ends or is killed.
func start(ctx context.Context, journal, dieAt, north, south string) (said string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), journalEnv+"="+journal, dieEnv+"="+dieAt, banksEnv+"="+north+" "+south)
	b, err := cmd.CombinedOutput()
	return strings.ReplaceAll("   "+strings.TrimSpace(string(b)), "\n", "\n   ") + "\n", err
}

// try is the rent in one bank's own form. The journal is shared, the scope is the bank's.
func try(ks idem.Keystore, scope, url string, trace *idem.Trace) (idem.Try, error) {
	c, err := idem.New(ks, &idem.Options{Scope: scope, Trace: trace})
	return idem.Try{Client: c, Request: func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(`{"id":"rent-may","amount":"900.00"}`))
	}}, err
}
