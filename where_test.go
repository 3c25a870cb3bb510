package osier

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/osierdb/osier/internal/mango"
)

// Filters encode as selectors, and these find what was asked for.
func TestFilter(t *testing.T) {
	for _, c := range []struct {
		filter   Filter
		selector string
		want     string
	}{
		{Filter{}, `{}`, "123456"},
		{Where("age").Gt(30), `{"age":{"$gt":30}}`, "36"},
		{AllOf(Where("age").Eq(30), Where("city").Eq("Oslo")), `{"$and":[{"age":{"$eq":30}},{"city":{"$eq":"Oslo"}}]}`, "1"},
		{AllOf(), `{}`, "123456"},
		{AllOf(AllOf(), Where("age").Lte(7)), `{"age":{"$lte":7}}`, "5"},
		{AnyOf(), `{"_id":{"$in":[]}}`, ""},
		{AnyOf(Where("age").Lt(10), AllOf()), `{}`, "123456"},
		{AnyOf(Where("age").Lt(10), AnyOf()), `{"$or":[{"age":{"$lt":10}},{"_id":{"$in":[]}}]}`, "5"},
		{Not(Where("age").Ne(30)), `{"$not":{"age":{"$ne":30}}}`, "14"},
		{Not(AllOf()), `{"_id":{"$in":[]}}`, ""},
		{Not(AnyOf()), `{"$not":{"_id":{"$in":[]}}}`, "123456"},
		{NoneOf(Where("age").Eq(30), Where("city").Eq("Oslo")), `{"$and":[{"$not":{"age":{"$eq":30}}},{"$not":{"city":{"$eq":"Oslo"}}}]}`, "26"},
		{Where("age").Between(25, 30), `{"$and":[{"age":{"$gte":25}},{"age":{"$lte":30}}]}`, "124"},
		{Where("age").In(7, 41), `{"age":{"$in":[7,41]}}`, "35"},
		{Where("tags").Nin("a"), `{"tags":{"$nin":["a"]}}`, "23"},
		{Where("tags").HasAll("a", "b"), `{"tags":{"$all":["a","b"]}}`, "1"},
		{Where("city").Missing(), `{"city":{"$exists":false}}`, "5"},
		{Where("addr.zip").Exists(), `{"addr.zip":{"$exists":true}}`, "125"},
		{WhereNames("dot.ted").Eq(1), `{"dot\\.ted":{"$eq":1}}`, "5"},
		{Where("ok").Type("boolean"), `{"ok":{"$type":"boolean"}}`, "12"},
		{Where("age").Mod(5, 0), `{"age":{"$mod":[5,0]}}`, "124"},
		{Where("name").Regex("^[A-D]"), `{"name":{"$regex":"^[A-D]"}}`, "134"},
		{Where("city").HasPrefix("Trom"), `{"city":{"$beginsWith":"Trom"}}`, "4"},
		{Where("tags").Len(2), `{"tags":{"$size":2}}`, "1"},
		{Where("items").Any(AllOf(Where("n").Eq(2), Where("q").Gt(5))), `{"items":{"$elemMatch":{"$and":[{"n":{"$eq":2}},{"q":{"$gt":5}}]}}}`, "3"},
		{Where("tags").All(Element().Type("string")), `{"tags":{"$allMatch":{"$type":"string"}}}`, "12"},
		{Where("scores").AnyKey(Element().Eq("z")), `{"scores":{"$keyMapMatch":{"$eq":"z"}}}`, "6"},
	} {
		text, err := json.Marshal(c.filter)
		if err != nil || string(text) != c.selector {
			t.Errorf("got %s, %v, want %s", text, err, c.selector)
			continue
		}
		s, err := mango.Compile(text, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := meant(t, s); got != c.want {
			t.Errorf("%s: got %q, want %q", text, got, c.want)
		}
	}
	if _, _, err := Where("a").Eq(math.Inf(1)).selector(); KindOf(err) != KindInvalid {
		t.Error("an argument that is not JSON was accepted")
	}
}

// people are what the filters are tried on.
var people = []mango.Doc{
	{ID: "1", Rev: "1-a", Body: []byte(`{"name":"Ann","age":30,"city":"Oslo","tags":["a","b"],"addr":{"zip":"0150","geo":{"lat":59.9}},"ok":true,"score":1.5}`)},
	{ID: "2", Rev: "1-b", Body: []byte(`{"name":"bob","age":25,"city":"Bergen","tags":["b"],"addr":{"zip":"5003"},"ok":false,"score":null}`)},
	{ID: "3", Rev: "1-c", Body: []byte(`{"name":"Cid","age":41,"city":"Oslo","tags":[],"addr":{},"score":"n/a","items":[{"n":1,"q":5},{"n":2,"q":7}]}`)},
	{ID: "4", Rev: "1-d", Body: []byte(`{"name":"Dee","age":30,"city":"Tromsø","tags":["c","a",5],"items":[{"n":2,"q":1}],"ok":null}`)},
	{ID: "5", Rev: "1-e", Body: []byte(`{"name":"Eve","age":7,"tags":"a","addr":{"zip":"0150"},"dot.ted":1,"scores":{"x":1,"y":9}}`)},
	{ID: "6", Rev: "1-f", Body: []byte(`{"name":"","age":"30","city":["Oslo"],"n":-3,"scores":{"z":2}}`)},
}

// meant returns the ids of the people that match, joined.
func meant(t *testing.T, s *mango.Selector) string {
	t.Helper()
	var ids strings.Builder
	for i := range people {
		ok, err := s.Match(&people[i])
		if err != nil {
			t.Fatalf("%s: document %s: %v", s, people[i].ID, err)
		}
		if ok {
			ids.WriteString(people[i].ID)
		}
	}
	return ids.String()
}
