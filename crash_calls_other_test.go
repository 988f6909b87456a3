//go:build !linux || !(amd64 || arm64)

package idem_test

import "errors"

// crashAtCall needs a system that lets a process watch its own calls.
func crashAtCall(crashJob) error { return errors.ErrUnsupported }
