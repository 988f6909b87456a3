// Package idem makes calls that change something at somebody else's HTTP API
// happen once.
package idem
