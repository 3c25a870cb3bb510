package main

import "github.com/osierdb/osier/server"

// doors are the protocols that osier serve speaks.
func doors() []server.Door { return nil }
