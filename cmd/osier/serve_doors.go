package main

import (
	"github.com/osierdb/osier/server"
	"github.com/osierdb/osier/server/couch"
)

// doors are the protocols that osier serve speaks.
func doors() []server.Door { return []server.Door{couch.New()} }
