package idem_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// verdictCell is what becomes of a call: what its caller hears, what is left of
// the entry, and whether the request would be sent again.
type verdictCell struct {
	fate  idem.Fate
	state string
	again bool
}

// The cells of the table, named as its columns are.
var (
	doneSettled    = verdictCell{idem.FateDone, "settled", false}
	donePending    = verdictCell{idem.FateDone, "pending", true}
	refused        = verdictCell{idem.FateNotDone, "settled", false}
	atDoor         = verdictCell{idem.FateNotDone, "withdrawn", false}
	atDoorAgain    = verdictCell{idem.FateNotDone, "withdrawn", true}
	followed       = verdictCell{idem.FateNotDone, "settled", true}
	inDoubt        = verdictCell{idem.FateUnknown, "pending", false}
	inDoubtAgain   = verdictCell{idem.FateUnknown, "pending", true}
	beyondResend   = verdictCell{idem.FateUnknown, "ambiguous", false}
	verdictAnyTime = [4]string{"nothing before", "something before", "replay marker", "key first"}
)

// verdictRow is a row of the contract's table. Cells stand for nothing before,
// and something before: plainly, with the replay marker, from a KeyFirst dialect.
type verdictRow struct {
	name     string
	statuses []int
	location string
	step     verdictStep // where there is no whole answer
	cells    [4]verdictCell
}

var verdictTable = []verdictRow{
	{name: "not sent, refused dial", step: verdictRefused, cells: [4]verdictCell{atDoorAgain, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "not sent, bad certificate", step: verdictError(&tls.CertificateVerificationError{Err: fmt.Errorf("unknown authority")}),
		cells: [4]verdictCell{atDoor, inDoubt, inDoubt, inDoubt}},
	{name: "sent, no answer", step: verdictLost, cells: [4]verdictCell{inDoubtAgain, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "2xx cut by length", step: verdictCut(201, false), cells: [4]verdictCell{donePending, donePending, donePending, donePending}},
	{name: "2xx cut in chunks", step: verdictCut(200, true), cells: [4]verdictCell{donePending, donePending, donePending, donePending}},
	{name: "2xx", statuses: []int{200, 201, 202, 203, 204, 207, 299},
		cells: [4]verdictCell{doneSettled, doneSettled, doneSettled, doneSettled}},
	{name: "307 308, same origin", statuses: []int{307, 308}, location: "/v2/charges",
		cells: [4]verdictCell{followed, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "307 308, other origin", statuses: []int{307, 308}, location: "https://eu.example/v1/charges?mode=live",
		cells: [4]verdictCell{refused, inDoubt, refused, inDoubt}}, // a redirect is no key look-up
	{name: "307 308, no Location", statuses: []int{307, 308}, cells: [4]verdictCell{refused, inDoubt, refused, inDoubt}},
	{name: "301 302, moved", statuses: []int{301, 302}, location: "https://eu.example/v1/charges?mode=live",
		cells: [4]verdictCell{refused, inDoubt, refused, inDoubt}},
	{name: "301 302, another path", statuses: []int{301, 302}, location: "https://api.example/login",
		cells: [4]verdictCell{inDoubt, inDoubt, inDoubt, inDoubt}},
	{name: "301 302, another query", statuses: []int{301, 302}, location: "https://eu.example/v1/charges",
		cells: [4]verdictCell{inDoubt, inDoubt, inDoubt, inDoubt}},
	{name: "301 302, no Location", statuses: []int{301, 302}, cells: [4]verdictCell{inDoubt, inDoubt, inDoubt, inDoubt}},
	{name: "303", statuses: []int{303}, location: "/v1/charges/ch_1", cells: [4]verdictCell{inDoubt, inDoubt, inDoubt, inDoubt}},
	{name: "refused by the application",
		statuses: []int{400, 402, 404, 405, 406, 410, 412, 415, 416, 417, 418, 422, 423, 424, 426, 428, 451, 501, 505},
		cells:    [4]verdictCell{refused, inDoubt, refused, refused}},
	{name: "at the door", statuses: []int{401, 403, 407, 411, 413, 414, 431}, cells: [4]verdictCell{atDoor, inDoubt, inDoubt, inDoubt}},
	{name: "408 421 425 499", statuses: []int{408, 421, 425, 499}, cells: [4]verdictCell{inDoubtAgain, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "409, dialect silent", statuses: []int{409}, cells: [4]verdictCell{refused, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "429", statuses: []int{429}, cells: [4]verdictCell{atDoorAgain, inDoubtAgain, inDoubtAgain, inDoubtAgain}},
	{name: "5xx", statuses: []int{500, 502, 503, 504, 507, 508, 511, 520, 521, 522, 524, 529, 530, 599},
		cells: [4]verdictCell{inDoubtAgain, inDoubtAgain, beyondResend, inDoubtAgain}},
}

// verdictCase is one answer in one of the four contexts.
type verdictCase struct {
	name    string
	context int
	status  int // 0: no whole answer
	step    verdictStep
	want    verdictCell
}

func verdictCases() (cases []verdictCase) {
	for _, r := range verdictTable {
		for at, want := range r.cells {
			if r.step != nil {
				cases = append(cases, verdictCase{r.name + ", " + verdictAnyTime[at], at, 0, r.step, want})
			}
			for _, status := range r.statuses {
				var headers []string
				if r.location != "" {
					headers = append(headers, "Location", r.location)
				}
				if at == 2 {
					headers = append(headers, "Idempotent-Replayed", "true")
				}
				body := `{"error":"no"}`
				if status == 204 {
					body = ""
				}
				cases = append(cases, verdictCase{fmt.Sprintf("%s: %d, %s", r.name, status, verdictAnyTime[at]),
					at, status, verdictAnswer(status, body, headers...), want})
			}
		}
	}
	return cases
}

// verdictSteps is the case's answer behind the lost one that makes "before".
func (v verdictCase) steps() []verdictStep {
	if v.context == 0 {
		return []verdictStep{v.step}
	}
	return []verdictStep{verdictLost, v.step}
}

// verdictClients are clients whose calls end right after the case's answer, one
// for each context.
//
// They share no journal: equal names in different contexts are different intents.
func verdictClients(t *testing.T, base http.RoundTripper, attempts func(context int) int) (clients [4]*idem.Client) {
	t.Helper()
	for at := range clients {
		retry := verdictPatient
		retry.MaxAttempts, retry.NoBudget = attempts(at), true
		c, err := idem.New(idem.NewMemoryKeystore(), &idem.Options{
			Base: base, Retry: retry, Breaker: idem.BreakerPolicy{Disabled: true},
			Dialect: idem.Dialect{Name: "table", KeyFirst: at == 3},
		})
		require.NoError(t, err)
		clients[at] = c
	}
	return clients
}

func upTo(context int) int { return min(context, 1) + 1 }

func TestDoTellsTheFateOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		clients := verdictClients(t, base, upTo)
		for _, v := range verdictCases() {
			c := clients[v.context]
			base.script(v.steps()...)
			resp, err := c.Do(verdictNamed(v.name))
			require.Equal(t, v.want.fate, idem.FateOf(resp, err), "%s: %v", v.name, err)
			require.Equal(t, v.want.state, verdictState(t, c, v.name), v.name)
			verdictSame(t, base.sends())

			final := v.status != 0 && v.want.fate != idem.FateUnknown
			require.Equal(t, final, err == nil, "%s: %v", v.name, err)
			if !final {
				e := verdictErr(t, resp, err)
				sent := len(base.sends())
				if strings.HasPrefix(v.name, "not sent") {
					sent-- // no byte of it can have reached the wire
				}
				require.Equal(t, sent, e.Attempts, v.name)
				continue
			}
			require.Equal(t, v.status, resp.StatusCode, v.name)
			r, ok := idem.ResultOf(resp)
			require.True(t, ok)
			require.Equal(t, v.context == 2, r.Replayed, v.name)
			require.Equal(t, len(base.sends()), r.Attempts, v.name)
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
	})
}

func TestTheTableSaysWhatIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		clients := verdictClients(t, base, func(int) int { return 5 })
		for _, v := range verdictCases() {
			c := clients[v.context]
			base.script(v.steps()...)
			resp, err := c.Do(verdictNamed(v.name))
			sent := base.sends()
			require.Equal(t, v.want.again, len(sent) > len(v.steps()), "%s: %d sends, %v", v.name, len(sent), err)
			verdictSame(t, sent)
			if v.want.again {
				require.NoError(t, err, v.name)
				require.Equal(t, idem.FateDone, idem.FateOf(resp, err), v.name)
				require.Equal(t, 200, resp.StatusCode, v.name)
				require.Equal(t, "settled", verdictState(t, c, v.name))
			}
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
	})
}

// Whatever ended Unknown may be asked for again under its name, and then it is
// still the same intent; whatever was settled answers without the network.
func TestTheNextDoGoesOnWithWhatTheTableLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		clients := verdictClients(t, base, upTo)
		for _, v := range verdictCases() {
			c := clients[v.context]
			base.script(v.steps()...)
			_, _ = c.Do(verdictNamed(v.name))
			first := base.sends()
			base.script()
			resp, err := c.Do(verdictNamed(v.name))
			next := base.sends()
			switch v.want.state {
			case "settled":
				require.NoError(t, err, v.name)
				require.Empty(t, next, v.name)
				r, _ := idem.ResultOf(resp)
				require.True(t, r.Recalled, v.name)
				require.Equal(t, v.want.fate, r.Fate, v.name)
				require.Equal(t, v.status, resp.StatusCode, v.name)
			case "pending":
				require.NoError(t, err, v.name)
				require.Len(t, next, 1, v.name)
				require.Equal(t, first[0].Key, next[0].Key, v.name)
			case "withdrawn":
				require.NoError(t, err, v.name)
				require.Len(t, next, 1, v.name)
				require.NotEqual(t, first[0].Key, next[0].Key, "%s: a withdrawn key came back", v.name)
			case "ambiguous":
				require.Empty(t, next, v.name)
				require.Equal(t, idem.FateUnknown, verdictErr(t, resp, err).Fate, v.name)
			}
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
	})
}

// Transport hands on what came, so that an SDK parses its own errors; but what
// would be taken for a refusal while the fate is open is an *Error.
func TestTransportShowsARefusalOnlyIfNothingHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &verdictBase{}
		clients := verdictClients(t, base, upTo)
		for _, v := range verdictCases() {
			base.script(v.steps()...)
			var told idem.Result
			req := verdictNamed(v.name)
			resp, err := clients[v.context].Transport().RoundTrip(req.WithContext(idem.WithResult(req.Context(), &told)))
			require.Equal(t, v.want.fate, told.Fate, v.name)
			hidden := v.status == 0 || v.status >= 300 && v.status < 500 && v.want.fate != idem.FateNotDone
			require.Equal(t, hidden, err != nil, "%s: %v", v.name, err)
			if hidden {
				e := verdictErr(t, resp, err)
				require.Equal(t, v.want.fate, e.Fate, v.name)
				if v.status != 0 {
					require.NotNil(t, e.Response, v.name)
					require.Equal(t, v.status, e.Response.StatusCode, v.name)
				}
				continue
			}
			require.Equal(t, v.status, resp.StatusCode, v.name)
			r, ok := idem.ResultOf(resp)
			require.True(t, ok, v.name)
			require.Equal(t, v.want.fate, r.Fate, v.name)
		}
		for _, c := range clients {
			require.NoError(t, c.Close())
		}
	})
}
