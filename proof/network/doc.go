// Package network has only tests: calls through a bad network of real sockets, made bad
// by Shopify/toxiproxy, by a proxy that resends, by a server that restarts, and by a DNS
// that fails. It is a module of its own, so that nobody else needs what it requires.
package network
