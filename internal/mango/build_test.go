package mango

import (
	"encoding/json"
	"math"
	"testing"
)

// Filters encode as selectors, and these find what was asked for.
func TestFilter(t *testing.T) {
	for _, c := range []struct {
		filter   Filter
		selector string
		want     string
	}{
		{Filter{}, `{}`, "123456"},
		{Field("age").Gt(30), `{"age":{"$gt":30}}`, "36"},
		{And(Field("age").Eq(30), Field("city").Eq("Oslo")), `{"$and":[{"age":{"$eq":30}},{"city":{"$eq":"Oslo"}}]}`, "1"},
		{And(), `{}`, "123456"},
		{And(And(), Field("age").Lte(7)), `{"age":{"$lte":7}}`, "5"},
		{Or(), `{"_id":{"$in":[]}}`, ""},
		{Or(Field("age").Lt(10), And()), `{}`, "123456"},
		{Or(Field("age").Lt(10), Or()), `{"$or":[{"age":{"$lt":10}},{"_id":{"$in":[]}}]}`, "5"},
		{Not(Field("age").Ne(30)), `{"$not":{"age":{"$ne":30}}}`, "14"},
		{Not(And()), `{"_id":{"$in":[]}}`, ""},
		{Not(Or()), `{"$not":{"_id":{"$in":[]}}}`, "123456"},
		{Nor(Field("age").Eq(30), Field("city").Eq("Oslo")), `{"$and":[{"$not":{"age":{"$eq":30}}},{"$not":{"city":{"$eq":"Oslo"}}}]}`, "26"},
		{Field("age").Between(25, 30), `{"$and":[{"age":{"$gte":25}},{"age":{"$lte":30}}]}`, "124"},
		{Field("age").In(7, 41), `{"age":{"$in":[7,41]}}`, "35"},
		{Field("tags").Nin("a"), `{"tags":{"$nin":["a"]}}`, "23"},
		{Field("tags").HasAll("a", "b"), `{"tags":{"$all":["a","b"]}}`, "1"},
		{Field("city").Missing(), `{"city":{"$exists":false}}`, "5"},
		{Field("addr.zip").Exists(), `{"addr.zip":{"$exists":true}}`, "125"},
		{Names("dot.ted").Eq(1), `{"dot\\.ted":{"$eq":1}}`, "5"},
		{Field("ok").Type("boolean"), `{"ok":{"$type":"boolean"}}`, "12"},
		{Field("age").Mod(5, 0), `{"age":{"$mod":[5,0]}}`, "124"},
		{Field("name").Regex("^[A-D]"), `{"name":{"$regex":"^[A-D]"}}`, "134"},
		{Field("city").HasPrefix("Trom"), `{"city":{"$beginsWith":"Trom"}}`, "4"},
		{Field("tags").Len(2), `{"tags":{"$size":2}}`, "1"},
		{Field("items").Any(And(Field("n").Eq(2), Field("q").Gt(5))), `{"items":{"$elemMatch":{"$and":[{"n":{"$eq":2}},{"q":{"$gt":5}}]}}}`, "3"},
		{Field("tags").All(Element().Type("string")), `{"tags":{"$allMatch":{"$type":"string"}}}`, "12"},
		{Field("scores").AnyKey(Element().Eq("z")), `{"scores":{"$keyMapMatch":{"$eq":"z"}}}`, "6"},
	} {
		text, err := json.Marshal(c.filter)
		if err != nil || string(text) != c.selector {
			t.Errorf("got %s, %v, want %s", text, err, c.selector)
			continue
		}
		s, err := c.filter.Compile(nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := found(t, s, people); got != c.want {
			t.Errorf("%s: got %q, want %q", text, got, c.want)
		}
	}
	if _, err := Field("a").Eq(math.Inf(1)).Compile(nil); err == nil {
		t.Error("an argument that is not JSON was accepted")
	}
}
