package osier

import (
	"encoding/json"
	"math"

	"github.com/osierdb/osier/internal/mango"
)

// FindRequest is the body of CouchDB's _find and _explain.
type FindRequest struct {
	FindQuery
	Skip  int
	Limit int // 25 unless the body says otherwise; 0 asks for nothing

	Conflicts      bool
	ExecutionStats bool
	// AllowFallback: another index may serve if the one named cannot.
	AllowFallback bool
	// UseDesign and UseName are what use_index names.
	UseDesign, UseName string
	Partition          string
	R                  int64 // the read quorum, of which a single server has no use
	Stable             bool
	// MixedSort: some fields ascend and others descend, which CouchDB refuses
	// ("unsupported_mixed_sort") and Find does not.
	MixedSort bool
}

// ParseFindRequest reads a request of CouchDB's _find or _explain, as CouchDB
// does: see SelectorError for its refusals. What the two understand differently
// is in the query: a sort leaves out documents without its fields, and takes an
// index on them.
func ParseFindRequest(body []byte) (*FindRequest, error) {
	m, err := mango.ParseRequest(body, nil)
	if err != nil {
		return nil, RefusedSelector("find", err)
	}
	var text struct {
		Selector json.RawMessage `json:"selector"`
	}
	if err := json.Unmarshal(body, &text); err != nil {
		return nil, RefusedSelector("find", err)
	}
	r := &FindRequest{
		FindQuery: FindQuery{Selector: text.Selector, Fields: m.Fields, SortedOnly: true, SortByIndex: true, Bookmark: m.Bookmark, Stale: !m.Update},
		Skip:      int(min(m.Skip, math.MaxInt32)), Limit: int(min(m.Limit, math.MaxInt32)),
		Conflicts: m.Conflicts, ExecutionStats: m.ExecutionStats, AllowFallback: m.AllowFallback,
		Partition: m.Partition, R: m.R, Stable: m.Stable, MixedSort: m.Sort.Mixed(),
	}
	for _, f := range m.Sort {
		r.Sort = append(r.Sort, SortField(f))
	}
	switch len(m.UseIndex) {
	case 1:
		r.UseDesign = m.UseIndex[0]
		r.UseIndex = CouchIndexName(r.UseDesign, "")
	case 2:
		r.UseDesign, r.UseName = m.UseIndex[0], m.UseIndex[1]
		if r.UseIndex = CouchIndexName(r.UseDesign, r.UseName); r.UseDesign == r.UseName {
			r.UseIndex = CouchIndexName(r.UseDesign, "") // also an index of that name alone
		}
	}
	r.Strict = r.UseIndex != "" && !r.AllowFallback
	return r, nil
}

// Query returns the query to be asked. A Limit of 0 is the caller's to answer:
// with nothing.
func (r *FindRequest) Query(collection string) *Query {
	find := r.FindQuery
	q := &Query{Kind: QueryFind, Collection: collection, Skip: r.Skip, Limit: r.Limit, Parts: WithBody, Find: &find}
	if r.Conflicts {
		q.Parts |= WithConflicts
	}
	return q
}
