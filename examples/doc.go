// Package examples holds one program for each situation:
//
//   - payments pays a file once, however often it is run.
package examples
