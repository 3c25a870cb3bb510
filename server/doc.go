// Package server serves a store over HTTP: listeners and TLS, sessions and
// users, limits, CORS, logs and metrics, and the doors that speak protocols.
package server
