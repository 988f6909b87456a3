// Package syscalls lets a process watch what it asks of the system about its files.
//
// That is the only full account of what it does to them: here are the temporary file, its
// link and the directory as well as bbolt's writes and syncs, which has no hook for the
// latter. A seccomp filter stops each of these calls and shows it to a goroutine, which
// records it and lets it go on, fail, or kill the process. That needs no rights, but
// Linux on amd64 or arm64.
package syscalls
