// Command idem shows what the library does, and looks into its journals.
//
//	idem demo                  pay a file of payments through faults and crashes, then audit
//	idem soak --for 10m        all kinds of calls, faults and kills for a while, then audit
//	idem pending JOURNAL       list what is not settled
//	idem show JOURNAL KEY      show one entry, by its key or its name
//
// Run any of them with -h for its flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// The exit codes. An interrupt is what shells call 128 + SIGINT.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// console is what a command reads and writes.
type console struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// command is one subcommand. Hidden ones are processes of the demo and the soak.
type command struct {
	name   string
	usage  string // "" hides it
	action func(ctx context.Context, con console, args []string) error
}

func commands() []command {
	return []command{
		{"demo", "demo [flags]              pay a file through faults and crashes, then audit", runDemo},
		{"soak", "soak [flags]              all kinds of calls through faults and crashes for a while, then audit", runSoak},
		{"pending", "pending [flags] JOURNAL   list what is not settled", runPending},
		{"show", "show [flags] JOURNAL KEY  show one entry, by its key or its name", runShow},
		{providerCommand, "", runProvider},
		{workerCommand, "", runWorker},
		{soakProviderCommand, "", runSoakProvider},
		{soakWorkerCommand, "", runSoakWorker},
	}
}

func main() { os.Exit(mainWith(os.Args[1:])) }

// mainWith is main, for tests whose binary stands in for this program.
func mainWith(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && slices.Contains([]string{providerCommand, workerCommand, soakProviderCommand, soakWorkerCommand}, args[0]) {
		// An interrupt at a terminal reaches the whole group. Those leave it to the
		// demo or the soak, which ends them.
		signal.Ignore(os.Interrupt)
	}
	return run(ctx, console{os.Stdin, os.Stdout, os.Stderr}, args)
}

// run runs one command and returns the process's exit code.
func run(ctx context.Context, con console, args []string) int {
	err := dispatch(ctx, con, args)
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(con.err, "idem: %v\nRun 'idem %s' for help.\n", wrong.why, wrong.help)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(con.err, "idem: interrupted")
		return exitInterrupted
	case errors.Is(err, errAudit): // the report has said it already
		return exitFailed
	}
	fmt.Fprintf(con.err, "idem: %v\n", err)
	return exitFailed
}

func dispatch(ctx context.Context, con console, args []string) error {
	if len(args) == 0 {
		return &usageError{errors.New("a command is missing"), "-h"}
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		help(con.out)
		return nil
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.action(ctx, con, args[1:])
		}
	}
	return &usageError{fmt.Errorf("unknown command %q", args[0]), "-h"}
}

func help(w io.Writer) {
	fmt.Fprint(w, "idem makes HTTP calls happen once. This command shows how, and looks into journals.\n\nUsage:\n\n")
	for _, c := range commands() {
		if c.usage != "" {
			fmt.Fprintf(w, "\tidem %s\n", c.usage)
		}
	}
	fmt.Fprint(w, "\n'idem COMMAND -h' tells the flags of a command.\n")
}

// usageError is a mistake on the command line.
type usageError struct {
	why  error
	help string // the arguments that print the help for it
}

func (e *usageError) Error() string { return e.why.Error() }

// parse reads the flags of a command and checks how many arguments follow them.
// The help goes to where the output goes: whoever asks for it wants to read it.
func parse(fs *flag.FlagSet, con console, args []string, about string, wanted ...string) error {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(con.out, about)
		fs.SetOutput(con.out)
		fs.PrintDefaults()
		return err
	case err != nil:
		return &usageError{err, fs.Name() + " -h"}
	case fs.NArg() < len(wanted):
		return &usageError{fmt.Errorf("%s: %s is missing", fs.Name(), wanted[fs.NArg()]), fs.Name() + " -h"}
	case fs.NArg() > len(wanted):
		return &usageError{fmt.Errorf("%s: unexpected argument %q", fs.Name(), fs.Arg(len(wanted))), fs.Name() + " -h"}
	}
	return nil
}
