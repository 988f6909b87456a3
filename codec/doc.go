// Package codec has ready batch codecs: the common JSON array, newline-delimited
// JSON, Amazon SQS, Microsoft Graph and the Formance ledger. A codec is plain
// data, registered under a name:
//
//	Codecs: map[string]idem.BatchCodec{
//		"payouts": codec.JSONArray{URL: "https://api.example.com/payouts/batch", HonoursKeys: true},
//	}
//
// An answer is read item by item and says only what stands in it:
//
//   - Results are found by ID, in any order. An item that the answer leaves out,
//     and a result that can't be read, settle nothing. An ID that is there twice
//     is returned twice, and one that was never sent is returned as it is; the
//     client judges both.
//   - The status of the call doesn't make an item Done or NotDone; the item's own
//     part does.
//   - NotDone is what the answer says of this call. What earlier calls may have
//     done, the client knows.
//   - An answer that isn't whole, or isn't of the format, is an error. So is one
//     over 64 MiB or with more than 65,536 results.
//
// IDs may be any text: where a format can't carry one, a short digest of it
// travels instead.
package codec
