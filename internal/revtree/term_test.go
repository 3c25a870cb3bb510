package revtree

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// naiveTerm is the judge of AppendTerm: it reads with encoding/json and writes a
// tree, one rule after the other, with no care for speed.
func naiveTerm(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	v, err := naiveRead(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("text after the document")
	}
	o, ok := v.(naiveObject)
	if !ok {
		return nil, errors.New("not an object")
	}
	var body naiveObject
	for _, m := range o {
		if !strings.HasPrefix(m.name, "_") {
			body = append(body, m)
		}
	}
	return naiveWrite(nil, body)
}

type naiveMember struct {
	name  string
	value any
}

type naiveObject []naiveMember

func naiveRead(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := naiveRead(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	case json.Delim('{'):
		o := naiveObject{}
	members:
		for dec.More() {
			name, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := naiveRead(dec)
			if err != nil {
				return nil, err
			}
			for i := range o {
				if o[i].name == name.(string) {
					o[i].value = v
					continue members
				}
			}
			o = append(o, naiveMember{name.(string), v})
		}
		_, err := dec.Token()
		return o, err
	}
	if n, ok := tok.(json.Number); ok { // refused even where it is left out
		_, err := naiveNumber(nil, string(n))
		return tok, err
	}
	return tok, nil
}

func naiveWrite(dst []byte, v any) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case nil:
		return append(dst, "d\x00\x04null"...), nil
	case bool:
		s := fmt.Sprint(v)
		return append(append(dst, 'd', 0, byte(len(s))), s...), nil
	case string:
		return append(binary.BigEndian.AppendUint32(append(dst, 'm'), uint32(len(v))), v...), nil
	case json.Number:
		return naiveNumber(dst, string(v))
	case []any:
		if s := naiveString(v); s != nil {
			return append(binary.BigEndian.AppendUint16(append(dst, 'k'), uint16(len(s))), s...), nil
		}
		if len(v) > 0 {
			dst = binary.BigEndian.AppendUint32(append(dst, 'l'), uint32(len(v)))
		}
		for _, e := range v {
			if dst, err = naiveWrite(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, 'j'), nil
	case naiveObject:
		dst = append(dst, 'h', 1)
		if len(v) > 0 {
			dst = binary.BigEndian.AppendUint32(append(dst, 'l'), uint32(len(v)))
		}
		for _, m := range v {
			if dst, err = naiveWrite(append(dst, 'h', 2), m.name); err != nil {
				return nil, err
			}
			if dst, err = naiveWrite(dst, m.value); err != nil {
				return nil, err
			}
		}
		return append(dst, 'j'), nil
	}
	return nil, fmt.Errorf("unexpected %T", v)
}

// naiveString returns the bytes of a list that is written as a string, else nil.
func naiveString(list []any) []byte {
	if len(list) == 0 || len(list) > 65535 {
		return nil
	}
	var s []byte
	for _, e := range list {
		n, ok := e.(json.Number)
		if !ok || strings.ContainsAny(string(n), ".eE") {
			return nil
		}
		i, err := strconv.Atoi(string(n))
		if err != nil || i < 0 || i > 255 {
			return nil
		}
		s = append(s, byte(i))
	}
	return s
}

func naiveNumber(dst []byte, s string) ([]byte, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, err
		}
		if math.Abs(f) < 2.2250738585072014e-308 {
			f = math.Copysign(0, f)
		}
		return binary.BigEndian.AppendUint64(append(dst, 'F'), math.Float64bits(f)), nil
	}
	i, ok := new(big.Int).SetString(s, 10)
	if !ok || len(strings.TrimPrefix(s, "-")) > MaxDigits {
		return nil, errors.New("integer")
	}
	switch {
	case i.IsInt64() && i.Int64() >= 0 && i.Int64() < 256:
		return append(dst, 'a', byte(i.Int64())), nil
	case i.IsInt64() && i.Int64() == int64(int32(i.Int64())):
		return binary.BigEndian.AppendUint32(append(dst, 'b'), uint32(i.Int64())), nil
	}
	mag := i.Bytes()
	for a, b := 0, len(mag)-1; a < b; a, b = a+1, b-1 {
		mag[a], mag[b] = mag[b], mag[a]
	}
	if len(mag) < 256 {
		dst = append(dst, 'n', byte(len(mag)))
	} else {
		dst = binary.BigEndian.AppendUint32(append(dst, 'o'), uint32(len(mag)))
	}
	sign := byte(0)
	if i.Sign() < 0 {
		sign = 1
	}
	return append(append(dst, sign), mag...), nil
}

// checkTerm compares AppendTerm with the judge: both refuse a text, or only
// AppendTerm does for a reason that its documentation names, or the terms agree.
func checkTerm(t *testing.T, text []byte) {
	t.Helper()
	prefix := []byte("kept")
	got, err := AppendTerm(prefix, text)
	want, judge := naiveTerm(text)
	if err != nil {
		var e *JSONError
		if !errors.As(err, &e) || !errors.Is(err, ErrJSON) || e.Offset < 0 || e.Offset > len(text) {
			t.Fatalf("AppendTerm(%.300q): untyped or misplaced error %v", text, err)
		}
		if string(got) != "kept" {
			t.Fatalf("AppendTerm(%.300q): dst is %q after an error", text, got)
		}
		switch e.Reason {
		case ReasonUTF8, ReasonSurrogate, ReasonDepth:
			return
		}
		if judge == nil {
			t.Fatalf("AppendTerm(%.300q): %v, but it is a document", text, err)
		}
		return
	}
	if !json.Valid(text) || !utf8.Valid(text) {
		t.Fatalf("AppendTerm(%.300q): accepted, but it is not JSON in UTF-8", text)
	}
	if judge != nil {
		t.Fatalf("AppendTerm(%.300q): accepted, but the judge says %v", text, judge)
	}
	if string(got[:4]) != "kept" || !bytes.Equal(got[4:], want) {
		t.Fatalf("AppendTerm(%.300q):\n got %x\nwant %x", text, got[4:], want)
	}
}

var termTexts = []string{
	`{}`, ` { } `, `{"a":null}`, `{"a":[true,false,null]}`, "\t\n\r {\"a\" : [ 1 , 2 ] , \"b\" : { } } ",
	`{"_id":"x","a":1}`, `{"a":1,"_id":{"a":1,"a":2}}`, `{"_a":1,"_b":2}`, `{"\u005fid":1,"x":{"_in":1}}`, `{"_":0}`,
	`{"a":1,"a":2}`, `{"a":1,"b":2,"a":3}`, `{"b":{"x":1,"y":2,"x":{"z":1,"z":[1,2]}},"a":1,"b":{"q":1,"q":2}}`,
	`{"a":{"k":1,"k":{"k":1,"k":{"k":1,"k":2}}},"b":[{"k":1,"k":2},{"l":[{"k":1,"k":2}],"l":3}]}`,
	`{"_x":{"a":1,"a":2},"b":{"a":1,"a":2}}`, `{"a":1,"\u0061":2}`,
	`{"a":0,"b":-0,"c":0.0,"d":-0.0,"e":1e3,"f":1E+3,"g":1e-3,"h":5e-324,"i":-5e-324,"j":2.2250738585072011e-308}`,
	`{"a":[255,256],"b":[0,-0],"c":[1,1.0],"d":[-1],"e":[300],"f":[[1],[2]],"g":[[]]}`,
	`{"a":2147483647,"b":2147483648,"c":-2147483648,"d":-2147483649,"e":4294967296}`,
	`{"a":9999999999999999999,"b":18446744073709551615,"c":18446744073709551616,"d":-18446744073709551616}`,
	`{"a":340282366920938463463374607431768211455,"b":-340282366920938463463374607431768211456,"c":10000000000000000000}`,
	`{"a":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00\u0000"}`, `{"a":"é€😀 and more than eight bytes"}`,
	// refused
	``, ` `, `[]`, `1`, `"x"`, `null`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{}x`, `{}{}`,
	`{"a":[}`, `{"a":[1}`, `{"a":[1,]}`, `{"a":[,1]}`, `{"a":{"b":1]}`, `{"a":01}`, `{"a":-}`, `{"a":+1}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`,
	`{"a":1e+}`, `{"a":1E400}`, `{"a":-1E400}`, `{"a":1.7976931348623159e308}`, `{"a":nul}`, `{"a":nulL}`, `{"a":tru`, `{"a":falsey}`, `{"a":x}`,
	"{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xc3\"}", "{\"\xff\":1}", "\xef\xbb\xbf{}",
	`{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`, `{"a":"\ud800\ud800"}`, `{"a":"\ud800x"}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a":"x`,
	"{\"a\":1}\x00", "\x0b{}",
}

// Each text gives the term of the judge or is refused as documented.
func TestAppendTerm(t *testing.T) {
	for _, text := range termTexts {
		checkTerm(t, []byte(text))
	}
}

// Texts that JSON leaves open are refused for the reason that is documented.
func TestAppendTermReasons(t *testing.T) {
	for _, c := range []struct {
		text   string
		reason Reason
		offset int
	}{
		{``, ReasonSyntax, 0},
		{`[1]`, ReasonNotObject, 0},
		{` 7`, ReasonNotObject, 1},
		{`{"a":1E400}`, ReasonRange, 5},
		{`{"a":"\ud800"}`, ReasonSurrogate, 6},
		{"{\"a\":\"ab\xff\"}", ReasonUTF8, 8},
		{`{"a":` + strings.Repeat("9", MaxDigits+1) + `}`, ReasonDigits, 5},
		{`{"a":` + strings.Repeat("[", MaxDepth), ReasonDepth, 5 + MaxDepth - 1},
		{`{"a":1}}`, ReasonSyntax, 7},
	} {
		_, err := AppendTerm(nil, []byte(c.text))
		var e *JSONError
		if !errors.As(err, &e) || e.Reason != c.reason || e.Offset != c.offset {
			t.Errorf("AppendTerm(%.40q): got %v, want %v at %d", c.text, err, c.reason, c.offset)
		}
	}
}

// The limits themselves are allowed.
func TestAppendTermAtLimits(t *testing.T) {
	checkTerm(t, []byte(`{"a":`+strings.Repeat("9", MaxDigits)+`,"b":-`+strings.Repeat("7", 617)+`}`))
	deep := `{"a":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `}`
	if _, err := AppendTerm(nil, []byte(deep)); err != nil {
		t.Errorf("%d levels: %v", MaxDepth, err)
	}
	checkTerm(t, []byte(deep))
	for _, n := range []int{65535, 65536} {
		checkTerm(t, []byte(`{"a":[`+strings.Repeat("7,", n-1)+`255]}`))
	}
}

// Objects of many members find a repeated name wherever it is.
func TestAppendTermManyMembers(t *testing.T) {
	for _, n := range []int{1, 2, 8, 9, 10, 63, 64, 65, 127, 128, 129, 1000} {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		checkTerm(t, []byte(`{`+b.String()+`"last":1}`))
		for _, i := range []int{0, n / 2, n - 1} {
			checkTerm(t, fmt.Appendf(nil, `{%s"k%d":"again","x":0}`, b.String(), i))
		}
	}
}

// Repeated names, one in the other, cost time in proportion to the text: copying
// the large value once a level would be 16 GB.
func TestAppendTermNestedRepeats(t *testing.T) {
	const depth = 4000
	text := strings.Repeat(`{"a":1,"b":2,"a":`, depth) + `"` + strings.Repeat("x", 4<<20) + `"` + strings.Repeat("}", depth)
	got, err := AppendTerm(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pair := len("h\x02m....a")
	if want := depth*(2+headerSize+2*pair+2+1) + headerSize + 4<<20; len(got) != want {
		t.Errorf("term of %d bytes, want %d", len(got), want)
	}
}

// randomJSON appends a JSON value.
func randomJSON(r *rand.Rand, b []byte, depth int) []byte {
	ws := func() {
		for r.IntN(8) == 0 {
			b = append(b, " \t\r\n"[r.IntN(4)])
		}
	}
	str := func(n int) {
		b = append(b, '"')
		for range n {
			pieces := []string{"a", "b", "_", "\\n", "\\u0041", "\\ud83d\\ude00", "é", "😀", "plain text of some length", "\\\"", "\\/"}
			b = append(b, pieces[r.IntN(len(pieces))]...)
		}
		b = append(b, '"')
	}
	ws()
	kind := r.IntN(9)
	if depth == 0 {
		kind = r.IntN(7)
	}
	switch kind {
	case 0:
		b = append(b, []string{"null", "true", "false"}[r.IntN(3)]...)
	case 1:
		b = strconv.AppendInt(b, int64(r.IntN(300))-10, 10)
	case 2:
		b = strconv.AppendInt(b, int64(r.Uint64())>>r.IntN(64), 10)
	case 3:
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			f = 0.5
		}
		b = strconv.AppendFloat(b, f, "eg"[r.IntN(2)], -1, 64)
	case 4:
		n := new(big.Int).Lsh(big.NewInt(int64(r.Uint64())), uint(r.IntN(3000)))
		b = n.Append(b, 10)
	case 5, 6:
		str(r.IntN(5))
	case 7:
		b = append(b, '[')
		for i := range r.IntN(6) {
			if i > 0 {
				b = append(b, ',')
			}
			b = randomJSON(r, b, depth-1)
		}
		ws()
		b = append(b, ']')
	case 8:
		b = append(b, '{')
		for i := range r.IntN(14) {
			if i > 0 {
				b = append(b, ',')
			}
			ws()
			str(r.IntN(3))
			ws()
			b = append(b, ':')
			b = randomJSON(r, b, depth-1)
		}
		ws()
		b = append(b, '}')
	}
	ws()
	return b
}

// Random documents, whole and damaged, agree with the judge.
func TestAppendTermRandom(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	for range 20_000 {
		text := randomJSON(r, []byte(`{"a":`), 4)
		text = randomJSON(r, append(text, `,"b":`...), 4)
		text = append(text, '}')
		checkTerm(t, text)
		switch i := r.IntN(len(text)); r.IntN(3) {
		case 0:
			checkTerm(t, text[:i])
		case 1:
			text[i] = byte(r.IntN(256))
			checkTerm(t, text)
		case 2:
			checkTerm(t, append(text[:i:i], text[i+1:]...))
		}
	}
}

func FuzzAppendTerm(f *testing.F) {
	for _, text := range termTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkTerm(t, text) })
}

// kibDocument returns a document of about 1 KiB as applications store them.
func kibDocument() []byte {
	return []byte(`{"_id":"order:2024-001942","type":"order","number":194221,"customer":{"id":"customer:88213","name":"Zoë Grünwald",` +
		`"email":"zoe@example.com","address":{"street":"Long Street 17","city":"Springfield","zip":"12345","country":"DE"}},` +
		`"lines":[{"sku":"A-1002","title":"Stainless steel bottle, 750 ml","quantity":2,"price":19.95,"tags":["kitchen","steel"]},` +
		`{"sku":"B-2210","title":"Notebook with dotted pages and a ribbon","quantity":5,"price":4.5,"tags":["paper","office"]},` +
		`{"sku":"C-0007","title":"Desk lamp, dimmable, warm white","quantity":1,"price":59.0,"tags":["light","office","led"]}],` +
		`"total":121.4,"currency":"EUR","paid":true,"shipped":false,"coupon":null,"created":"2024-03-18T09:21:44.123Z",` +
		`"history":[{"at":"2024-03-18T09:21:44.123Z","event":"created"},{"at":"2024-03-18T09:22:10.001Z","event":"paid"}],` +
		`"channel":"web","agent":"Mozilla/5.0 (X11; Linux x86_64; rv:124.0)","campaign":"spring sale","note":"Please leave the parcel at the side door if nobody opens; the bell is broken.\nThank you!","flags":[1,0,1,1,0,0,4]}`)
}

// A document of usual size costs no allocation but the growth of dst.
func TestAppendTermAllocs(t *testing.T) {
	doc, dst := kibDocument(), make([]byte, 0, 4096)
	if n := len(doc); n < 1000 || n > 1150 {
		t.Errorf("document of %d bytes, want about 1 KiB", n)
	}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := AppendTerm(dst, doc); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

func BenchmarkAppendTerm(b *testing.B) {
	doc, dst := kibDocument(), make([]byte, 0, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := AppendTerm(dst, doc); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValid is what only checking the syntax costs in the standard library.
func BenchmarkValid(b *testing.B) {
	doc := kibDocument()
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if !json.Valid(doc) {
			b.Fatal("not valid")
		}
	}
}

// The term of one document, byte for byte.
func TestAppendTermBytes(t *testing.T) {
	got, err := AppendTerm(nil, []byte(`{"a":[1,2],"_b":0,"c":-1}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "68016c00000002" + "68026d0000000161" + "6b00020102" + "68026d0000000163" + "62ffffffff" + "6a"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}
