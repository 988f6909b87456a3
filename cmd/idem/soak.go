package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
)

const soakHelp = `Usage: idem soak [flags]

Makes payments of every kind (named, keyed, under an SDK, anonymous, queued, in
batches, reserved) through a faulty provider, for a while. Two workers do it, each on
a journal of its own: one is killed (SIGKILL) again and again and goes on where it
was; the other lives throughout, and shows whether memory and journal stay flat.
A line a minute says how far it is. At the end the provider's ledger is audited.

The exit code is 1 if a payment was applied twice or lost, or if something grows.

Flags:
`

type soakConfig struct {
	last time.Duration
	seed uint64
	rate float64
}

func runSoak(ctx context.Context, con console, args []string) error {
	fs := flag.NewFlagSet("soak", flag.ContinueOnError)
	var cfg soakConfig
	fs.DurationVar(&cfg.last, "for", 10*time.Minute, "how `long`")
	fs.Uint64Var(&cfg.seed, "seed", 0, "`number` from which faults and kills are drawn; 0 draws one, and prints it")
	fs.Float64Var(&cfg.rate, "rate", 40, "payments a second that each worker begins, a batch counted as one")
	if err := parse(fs, con, args, soakHelp); err != nil {
		return err
	}
	if cfg.last <= 0 || !(cfg.rate > 0) || cfg.rate > 1e4 {
		return &usageError{errors.New("soak: --for and --rate must be positive, --rate at most 10000"), "soak -h"}
	}
	for cfg.seed == 0 {
		cfg.seed = rand.Uint64() >> 32
	}
	dir, err := os.MkdirTemp("", "idem-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &soak{soakConfig: cfg, con: con, dir: dir}
	return s.run(ctx)
}

// soak is one run of the command.
type soak struct {
	soakConfig
	con console
	dir string
	url string
}

func (s *soak) run(ctx context.Context) error {
	fmt.Fprintf(s.con.out, "soak for %v, seed %d (again with --seed %d)\n", s.last, s.seed, s.seed)
	ctx, cancel := context.WithCancelCause(ctx)
	prov, err := startProvider(ctx, soakProviderCommand, s.seed, cancel)
	if err != nil {
		return err
	}
	defer prov.stop(cancel)
	s.url = prov.url
	killed, steady := s.crew("killed"), s.crew("steady")
	end := time.Now().Add(s.last)
	errs := make([]error, 2)
	var crews sync.WaitGroup
	crews.Go(func() { errs[0] = killed.run(ctx, end, rand.New(rand.NewPCG(s.seed, 1))) })
	crews.Go(func() { errs[1] = steady.run(ctx, end, nil) })
	over := make(chan struct{})
	go func() { crews.Wait(); close(over) }()
	sizes := s.watch(ctx, over, end, killed, steady)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	book, err := read[soakBook](ctx, s.url+"/book")
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return s.audit(book, sizes, killed, steady)
}

// watch prints a line a minute, and a last one when all is over.
func (s *soak) watch(ctx context.Context, over <-chan struct{}, end time.Time, killed, steady *soakCrew) (sizes []soakSize) {
	began := time.Now()
	tick := time.NewTicker(min(time.Minute, s.last/2))
	defer tick.Stop()
	for {
		select {
		case <-over:
			return sizes
		case <-tick.C:
		}
		requests, _ := read[int64](ctx, s.url+"/requests") // 0 in a line harms nobody
		size := steady.size()
		if time.Now().Before(end) {
			sizes = append(sizes, size)
		}
		fmt.Fprintf(s.con.out, "%6s  %7d paid  %8d requests  %4d kills  worker %5.1f MB  journal %5.1f MB, of the killed one %5.1f MB\n",
			time.Since(began).Round(time.Second), killed.count()+steady.count(), requests, killed.killed(), mega(size.memory), mega(size.journal), mega(killed.size().journal))
	}
}

func mega(n int64) float64 { return float64(n) / (1 << 20) }

// audit holds what the workers said against the provider's book.
func (s *soak) audit(book soakBook, sizes []soakSize, crews ...*soakCrew) error {
	var once, twice, lost, refused, denied int
	for _, n := range book.Effects {
		switch {
		case n == 1:
			once++
		case n > 1:
			twice++
		}
	}
	for _, c := range crews {
		for id := range c.paid {
			if book.Effects[id] == 0 {
				lost++
			}
		}
		for id := range c.refused {
			refused++
			if book.Effects[id] > 0 {
				denied++
			}
		}
		lost += c.unheard(book)
	}
	growth := grown(sizes)
	fmt.Fprintf(s.con.out, "\naudit: %d payments, %d applied once, %d twice, %d lost, %d told NotDone, of which %d were applied; %d requests, %d kills\n",
		once+twice, once, twice, lost, refused, denied, book.Requests, crews[0].killed())
	if growth != "" {
		fmt.Fprintln(s.con.out, growth)
	}
	if twice+lost+denied > 0 || growth != "" {
		return errAudit
	}
	fmt.Fprintln(s.con.out, "every payment was applied exactly once.")
	return nil
}

// soakSize is how much a worker takes.
type soakSize struct{ memory, journal int64 }

// grown compares the middle of a soak with its end, where it is long enough to have a
// middle: 5 minutes. A half more, and some, is no growth but chance.
func grown(sizes []soakSize) string {
	if len(sizes) < 5 {
		return ""
	}
	mid, last := sizes[len(sizes)/2-1], sizes[len(sizes)-1]
	var said []string
	if last.memory > mid.memory*3/2+8<<20 {
		said = append(said, fmt.Sprintf("memory grew from %.1f to %.1f MB", mega(mid.memory), mega(last.memory)))
	}
	if last.journal > mid.journal*3/2+4<<20 {
		said = append(said, fmt.Sprintf("the journal grew from %.1f to %.1f MB", mega(mid.journal), mega(last.journal)))
	}
	return strings.Join(said, "; ")
}
