package dialect

import (
	"time"

	"github.com/idem-go/idem"
)

// GoogleBody is AIP-155 where request_id is a member of the JSON body, as in
// custom methods ("/v1/things/1:start"). Google's field format is UUID4.
func GoogleBody() idem.Dialect {
	return idem.Dialect{
		Name: "google-body", Placement: idem.PlaceJSON, Field: "requestId",
		KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36, Window: time.Hour,
		Source:     "https://google.aip.dev/155",
		Checked:    checked,
		Unverified: []string{"Window"},
	}
}

// GoogleQuery is AIP-155 where request_id is a query parameter, as in standard
// methods, whose body is the resource.
func GoogleQuery() idem.Dialect {
	return idem.Dialect{
		Name: "google-query", Placement: idem.PlaceQuery, Field: "requestId",
		KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36,
		Methods: []string{"POST", "PATCH", "DELETE"}, Window: time.Hour,
		Source:     "https://google.aip.dev/155",
		Checked:    checked,
		Unverified: []string{"Window"},
	}
}

// GoogleCompute is compute.googleapis.com: the query parameter requestId. Its
// client libraries don't fill it in by themselves.
func GoogleCompute() idem.Dialect {
	return idem.Dialect{
		Name: "google-compute", Placement: idem.PlaceQuery, Field: "requestId",
		KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36,
		Methods: []string{"POST", "PUT", "PATCH", "DELETE"}, Window: time.Hour,
		Source:     "https://docs.cloud.google.com/dotnet/docs/reference/Google.Cloud.Compute.V1/latest/Google.Cloud.Compute.V1.InsertTargetInstanceRequest",
		Checked:    checked,
		Unverified: []string{"Window", "Methods"},
	}
}

// AWS is the common shape of AWS's JSON APIs: a token in the body. Set Field to
// the operation's own ("ClientRequestToken", "IdempotencyToken", …), and Window
// where you know it. The body is signed: Authorize has to sign after the key is
// placed.
func AWS() idem.Dialect {
	d := idem.Dialect{
		Name: "aws", Placement: idem.PlaceJSON, Field: "clientToken",
		KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36, Methods: []string{"POST", "PUT"},
		Window:     10 * time.Minute, // DynamoDB transactions, the shortest one known
		Headers:    []string{"X-Amz-Target"},
		Source:     "https://github.com/boto/botocore",
		Checked:    checked,
		Unverified: []string{"Window", "Field"},
	}
	for _, code := range []string{"IdempotentParameterMismatch", "IdempotentParameterMismatchException",
		"IdempotencyParameterMismatch", "IdempotencyException"} {
		d.Mismatch = append(d.Mismatch, awsError(code)...)
	}
	for _, code := range []string{"TransactionInProgressException", "PriorRequestNotComplete",
		"IdempotencyTokenInUseException"} {
		d.InFlight = append(d.InFlight, awsError(code)...)
	}
	return awsDoor(d)
}

// awsDoor fills in what AWS's common errors say of a limit, and of credentials: neither
// was processed, though the status is 400
// (docs.aws.amazon.com/awssupport/latest/APIReference/CommonErrors.html, botocore/retries).
func awsDoor(d idem.Dialect) idem.Dialect {
	for _, code := range []string{"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "SlowDown", "EC2ThrottledException"} {
		d.Throttled = append(d.Throttled, awsError(code)...)
	}
	for _, code := range []string{"ExpiredToken", "ExpiredTokenException", "RequestExpired", "UnrecognizedClientException", "InvalidClientTokenId",
		"IncompleteSignature", "InvalidSignatureException", "SignatureDoesNotMatch", "MissingAuthenticationToken", "AccessDeniedException"} {
		d.AtDoor = append(d.AtDoor, awsError(code)...)
	}
	return d
}

// awsError recognises an error code at both places where JSON APIs put it.
func awsError(code string) []idem.Match {
	return []idem.Match{
		{Header: "X-Amzn-Errortype", Value: code},
		{Path: "__type", Value: code},
		{Path: "Errors.Error.Code", Value: code}, // EC2's XML
		{Path: "Error.Code", Value: code},        // the query protocol's
	}
}

// EC2 is the EC2 query API: the form field ClientToken of the actions that have
// one. Others refuse it as unknown, so use Skip for them. Its errors are XML.
func EC2() idem.Dialect {
	return awsDoor(idem.Dialect{
		Mismatch: awsError("IdempotentParameterMismatch"),
		Name:     "ec2", Placement: idem.PlaceForm, Field: "ClientToken",
		KeyForm: idem.KeyUUIDv4, MaxKey: 64, Methods: post(), Window: day,
		Source:     "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html",
		Checked:    checked,
		Unverified: []string{"Window"},
	})
}

// Azure is the OASIS repeatable requests of Azure, as Communication Services have
// them: the key and the time of the first send, in a window of 5 minutes. A repeat
// after it is 412, and won't run. A clock that is minutes off breaks it.
func Azure() idem.Dialect {
	return idem.Dialect{
		Name: "azure", Field: "Repeatability-Request-ID", FirstSent: "Repeatability-First-Sent",
		KeyForm: idem.KeyUUIDv4, MinKey: 36, MaxKey: 36, Window: 5 * time.Minute,
		InFlight: []idem.Match{{Status: 409}},
		Mismatch: []idem.Match{{Status: 400, Header: "Repeatability-Result", Value: "rejected"}},
		Source:   "https://learn.microsoft.com/en-us/rest/api/communication/repeatable-requests",
		Checked:  checked,
	}
}
