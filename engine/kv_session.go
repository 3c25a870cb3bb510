package engine

import (
	"encoding/binary"
	"math"

	"github.com/osierdb/osier"
)

// resultWithKV is the version of a remembered answer whose operations carry
// results of key-values.
const resultWithKV = 2

// leastKVItem is the least bytes of an item.
const leastKVItem = 10

// appendKVResult writes a result behind a 1; nil is a 0.
func appendKVResult(dst []byte, res *osier.KVResult) []byte {
	if res == nil {
		return append(dst, 0)
	}
	var found, value byte
	if res.Found {
		found = 1
	}
	if res.Value != nil {
		value = 1
	}
	dst = append(dst, 1, found, byte(res.Type), value)
	dst = appendText(dst, string(res.Value))
	for _, n := range [...]uint64{res.Version, uint64(res.Deadline), res.Number, uint64(res.Count), uint64(len(res.Items))} {
		dst = binary.AppendUvarint(dst, n)
	}
	for i := range res.Items {
		it := &res.Items[i]
		dst = appendText(appendText(dst, it.Name), string(it.Value))
		dst = binary.BigEndian.AppendUint64(dst, math.Float64bits(it.Score))
	}
	return dst
}

func (r *reader) kvResult() *osier.KVResult {
	if r.byte() == 0 {
		return nil
	}
	res := &osier.KVResult{Found: r.byte() == 1, Type: osier.KVType(r.byte())}
	hasValue := r.byte() == 1
	if v := r.text(); hasValue {
		res.Value = []byte(v)
	}
	res.Version, res.Deadline, res.Number, res.Count = r.uvarint(), int64(r.uvarint()), r.uvarint(), int64(r.uvarint())
	n := r.count(leastKVItem)
	for range n {
		it := osier.KVItem{Name: r.text()}
		if v := r.text(); v != "" {
			it.Value = []byte(v)
		}
		if b := r.bytes(8); b != nil {
			it.Score = math.Float64frombits(binary.BigEndian.Uint64(b))
		}
		res.Items = append(res.Items, it)
	}
	return res
}
