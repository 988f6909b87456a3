package idem_test

import (
	"context"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec"
	"github.com/idem-go/idem/mockserver"
)

func ExampleClient_Batch() {
	bank := mockserver.New(&mockserver.Config{Batch: &mockserver.Batch{
		Script: map[string][]mockserver.ItemOutcome{"payout-2": {mockserver.ItemLose}, "payout-3": {mockserver.ItemRefuse}},
	}})
	defer bank.Close()
	ks := idem.NewMemoryKeystore()
	defer ks.Close()
	client, err := idem.New(ks, &idem.Options{Base: bank.Transport(), Codecs: map[string]idem.BatchCodec{
		"payouts": codec.JSONArray{URL: bank.URL + "/payouts", HonoursKeys: true},
	}})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	items := []idem.Item{
		{ID: "payout-1", Body: []byte(`{"amount":100}`)},
		{ID: "payout-2", Body: []byte(`{"amount":200}`)}, // the first answer leaves it out
		{ID: "payout-3", Body: []byte(`{"amount":300}`)},
	}
	for range 2 { // the second run asks the journal alone
		done := 0
		for r, err := range client.Batch(context.Background(), idem.Batch{Name: "may", Items: idem.Items(items...), Codec: "payouts"}) {
			if err != nil {
				panic(err)
			}
			if r.Fate == idem.FateDone {
				done++
			}
		}
		fmt.Println(done, "done,", bank.Total(), "effects")
	}
	// Output:
	// 2 done, 2 effects
	// 2 done, 2 effects
}
