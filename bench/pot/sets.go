package main

import (
	"fmt"
	"math/bits"
)

//go:generate go run github.com/tinylib/msgp -file sets.go -o sets_msgp.go -tests=false -io=false

// Address is the client's address in a log record.
type Address struct {
	X0 uint8 `json:"x0" msg:"x0"`
	X1 uint8 `json:"x1" msg:"x1"`
	X2 uint8 `json:"x2" msg:"x2"`
	X3 uint8 `json:"x3" msg:"x3"`
}

// Record is one entry of the log set.
type Record struct {
	Address  Address `json:"address" msg:"address"`
	Identity string  `json:"identity" msg:"identity"`
	UserID   string  `json:"userid" msg:"userid"`
	Date     string  `json:"date" msg:"date"`
	Request  string  `json:"request" msg:"request"`
	Code     uint16  `json:"code" msg:"code"`
	Size     uint64  `json:"size" msg:"size"`
}

// Logs is the log set: a deterministic list of records on which serialization
// libraries of several languages are compared.
type Logs struct {
	Logs []Record `json:"logs" msg:"logs"`
}

// Entry is one entry of the archive set, that of Pot's own benchmark.
type Entry struct {
	Level     string  `json:"level" msg:"level"`
	UserID    string  `json:"user_id" msg:"user_id"`
	Timestamp string  `json:"timestamp" msg:"timestamp"`
	Request   string  `json:"request" msg:"request"`
	Message   *string `json:"message" msg:"message"`
	Code      uint16  `json:"code" msg:"code"`
	Size      uint64  `json:"size" msg:"size"`
}

// Archive is the archive set.
type Archive struct {
	Entries []Entry `json:"entries" msg:"entries"`
}

// Post is a document of the set of small ones.
type Post struct {
	ID        string   `json:"id" msg:"id"`
	Title     string   `json:"title" msg:"title"`
	Author    string   `json:"author" msg:"author"`
	Tags      []string `json:"tags" msg:"tags"`
	Words     int32    `json:"words" msg:"words"`
	Likes     uint32   `json:"likes" msg:"likes"`
	Score     float64  `json:"score" msg:"score"`
	Published bool     `json:"published" msg:"published"`
	Created   int64    `json:"created" msg:"created"`
}

// pcg32 is the PCG generator with the XSH-RR output.
type pcg32 struct{ state, inc uint64 }

func newPCG32(state, stream uint64) *pcg32 {
	p := &pcg32{inc: 2*stream + 1}
	p.state = state + p.inc
	p.next()
	return p
}

func (p *pcg32) next() uint32 {
	s := p.state
	p.state = s*6364136223846793005 + p.inc
	return bits.RotateLeft32(uint32((s>>18^s)>>27), -int(s>>59))
}

func (p *pcg32) next64() uint64 {
	lo := uint64(p.next())
	return lo | uint64(p.next())<<32
}

// pick64 draws from lo..hi evenly, by products of 64 bits.
func (p *pcg32) pick64(lo, hi uint64) uint64 {
	n := hi - lo + 1
	zone := n<<bits.LeadingZeros64(n) - 1
	for {
		if h, l := bits.Mul64(p.next64(), n); l <= zone {
			return lo + h
		}
	}
}

// pick32 is pick64 in 32 bits.
func (p *pcg32) pick32(lo, hi uint32) uint32 {
	n := hi - lo + 1
	zone := n<<bits.LeadingZeros32(n) - 1
	for {
		if m := uint64(p.next()) * uint64(n); uint32(m) <= zone {
			return lo + uint32(m>>32)
		}
	}
}

func pick[T any](p *pcg32, list []T) T { return list[p.pick64(0, uint64(len(list)-1))] }

var (
	users     = []string{"-", "alice", "bob", "carmen", "david", "eric", "frank", "george", "harry"}
	months    = []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}
	verbs     = []string{"GET", "POST", "PUT", "UPDATE", "DELETE"}
	paths     = []string{"/favicon.ico", "/css/index.css", "/css/font-awsome.min.css", "/img/logo-full.svg", "/img/splash.jpg", "/api/login", "/api/logout"}
	protocols = []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2", "HTTP/3"}
	codes     = []uint16{100, 101, 102, 103, 200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511}
	levels    = []string{"Trace", "Debug", "Info", "Warn", "Error"}
	words     = []string{"voluptas", "et", "dolorem", "quia", "nemo", "ipsam", "sit", "aspernatur", "aut", "odit", "fugit", "consequuntur", "magni", "dolores"}
)

// makeLogs makes the log set.
func makeLogs() *Logs {
	p := newPCG32(3141592653, 5897932384)
	var zones []string
	for h := -12; h <= 12; h++ {
		zones = append(zones, fmt.Sprintf("%+03d00", h))
	}
	set := &Logs{Logs: make([]Record, p.pick64(10000, 10000))}
	for i := range set.Logs {
		day, month, year := p.pick32(1, 28), pick(p, months), p.pick32(1970, 2021)
		hour, minute, second := p.pick32(0, 23), p.pick32(0, 59), p.pick32(0, 59)
		date := fmt.Sprintf("%d/%s/%d:%d:%d:%d %s", day, month, year, hour, minute, second, pick(p, zones))
		request := pick(p, verbs)
		request += " " + pick(p, paths)
		request += " " + pick(p, protocols)
		r := Record{Identity: "-", Date: date, Request: request}
		r.Address = Address{uint8(p.next()), uint8(p.next()), uint8(p.next()), uint8(p.next())}
		r.UserID, r.Code, r.Size = pick(p, users), pick(p, codes), p.pick64(0, 99999999)
		set.Logs[i] = r
	}
	return set
}

func sentence(p *pcg32, n uint64) string {
	s := pick(p, words)
	for range n {
		s += " " + pick(p, words)
	}
	return s
}

// makeArchive makes an archive of a thousand entries.
func makeArchive() *Archive {
	p := newPCG32(1, 1)
	a := &Archive{Entries: make([]Entry, 1000)}
	for i := range a.Entries {
		e := Entry{Level: pick(p, levels), UserID: pick(p, users) + "_" + pick(p, words), Code: pick(p, codes), Size: p.next64() >> p.pick64(0, 60)}
		e.Timestamp = fmt.Sprintf("%d-%02d-%02dT%02d:%02d:%02d.%09dZ", p.pick32(2015, 2026), p.pick32(1, 12), p.pick32(1, 28), p.pick32(0, 23), p.pick32(0, 59), p.pick32(0, 59), p.pick32(0, 999999999))
		e.Request = "/usr/share/" + pick(p, words) + "/" + pick(p, words) + ".txt"
		if p.pick32(0, 1) == 1 {
			m := sentence(p, p.pick64(2, 12))
			e.Message = &m
		}
		a.Entries[i] = e
	}
	return a
}

// makePosts makes a thousand documents.
func makePosts() []*Post {
	p := newPCG32(2, 2)
	posts := make([]*Post, 1000)
	for i := range posts {
		d := &Post{ID: fmt.Sprintf("post-%08x", p.next()), Title: sentence(p, p.pick64(2, 5)), Author: pick(p, users), Words: int32(p.pick32(50, 5000)),
			Likes: p.pick32(0, 100000), Score: float64(p.pick32(0, 1000)) / 10, Published: p.pick32(0, 3) > 0, Created: int64(p.pick64(1.5e12, 1.8e12))}
		for range p.pick64(1, 4) {
			d.Tags = append(d.Tags, pick(p, words))
		}
		posts[i] = d
	}
	return posts
}
