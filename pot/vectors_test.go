package pot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The vectors were obtained by running the Rust crate Pot 3.0.1. Payloads are
// without their header unless a table says otherwise.

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var headerVectors = []struct {
	arg uint64
	hex string
}{
	{0, "a0"}, {1, "a1"}, {2, "a2"}, {4, "a4"},
	{15, "af"}, {16, "b001"}, {32, "b002"}, {64, "b004"},
	{127, "bf07"}, {128, "b008"}, {1024, "b040"}, {2047, "bf7f"},
	{2048, "b08001"}, {4096, "b08002"}, {8192, "b08004"}, {16384, "b08008"},
	{32768, "b08010"}, {65536, "b08020"}, {131072, "b08040"}, {262143, "bfff7f"},
	{262144, "b0808001"}, {524288, "b0808002"}, {1048576, "b0808004"}, {2097152, "b0808008"},
	{4194304, "b0808010"}, {8388608, "b0808020"}, {16777216, "b0808040"}, {33554431, "bfffff7f"},
	{33554432, "b080808001"}, {67108864, "b080808002"}, {134217728, "b080808004"}, {536870912, "b080808010"},
	{1073741824, "b080808020"}, {2147483648, "b080808040"}, {4294967296, "b08080808001"}, {8589934592, "b08080808002"},
	{34359738368, "b08080808008"}, {68719476736, "b08080808010"}, {137438953472, "b08080808020"}, {274877906944, "b08080808040"},
	{549755813888, "b0808080808001"}, {1099511627776, "b0808080808002"}, {2199023255552, "b0808080808004"}, {8796093022208, "b0808080808010"},
	{17592186044416, "b0808080808020"}, {35184372088832, "b0808080808040"}, {70368744177664, "b080808080808001"}, {140737488355328, "b080808080808002"},
	{2251799813685248, "b080808080808020"}, {4503599627370496, "b080808080808040"}, {18014398509481984, "b08080808080808002"}, {36028797018963968, "b08080808080808004"},
	{72057594037927936, "b08080808080808008"}, {144115188075855872, "b08080808080808010"}, {288230376151711744, "b08080808080808020"}, {576460752303423488, "b08080808080808040"},
	{1152921504606846976, "b0808080808080808001"}, {2305843009213693952, "b0808080808080808002"}, {4611686018427387904, "b0808080808080808004"}, {9223372036854775808, "b0808080808080808008"},
	{18446744073709551615, "bfffffffffffffffff0f"},
}

var integerVectors = []struct {
	unsigned   bool
	value, hex string
}{
	{true, "0", "4000"},
	{true, "128", "4080"},
	{true, "255", "40ff"},
	{true, "65535", "41ffff"},
	{true, "65536", "42000001"},
	{true, "16777215", "42ffffff"},
	{true, "16777216", "4300000001"},
	{true, "4294967295", "43ffffffff"},
	{true, "281474976710655", "45ffffffffffff"},
	{true, "281474976710656", "470000000000000100"},
	{false, "0", "2000"},
	{false, "1", "2001"},
	{false, "-1", "20ff"},
	{false, "127", "207f"},
	{false, "128", "218000"},
	{false, "-128", "2080"},
	{false, "-129", "217fff"},
	{false, "32768", "22008000"},
	{false, "-32768", "210080"},
	{false, "8388607", "22ffff7f"},
	{false, "8388608", "2300008000"},
	{false, "-8388608", "22000080"},
	{false, "-8388609", "23ffff7fff"},
	{false, "2147483647", "23ffffff7f"},
	{false, "2147483648", "25000000800000"},
	{false, "-2147483648", "2300000080"},
	{false, "-2147483649", "25ffffff7fffff"},
	{false, "140737488355327", "25ffffffffff7f"},
	{false, "140737488355328", "270000000000800000"},
	{false, "-140737488355329", "27ffffffffff7fffff"},
	{false, "9223372036854775807", "27ffffffffffffff7f"},
	{false, "-9223372036854775808", "270000000000000080"},
	{false, "9223372036854775808", "2f00000000000000800000000000000000"},
	{false, "-9223372036854775809", "2fffffffffffffff7fffffffffffffffff"},
	{false, "170141183460469231731687303715884105727", "2fffffffffffffffffffffffffffffff7f"},
	{false, "-170141183460469231731687303715884105728", "2f00000000000000000000000000000080"},
}

// Atom headers are the shortest for their argument, and read back.
func TestHeaderVectors(t *testing.T) {
	for _, v := range headerVectors {
		got := appendHeader(nil, kindMap, v.arg)
		if hex.EncodeToString(got) != v.hex || headerLen(v.arg) != len(got) {
			t.Errorf("argument %d: want %s, got %x of length %d", v.arg, v.hex, got, headerLen(v.arg))
		}
		kind, arg, next, code := parseHeader(got, 0)
		if kind != kindMap || arg != v.arg || next != len(got) || code != 0 {
			t.Errorf("%s: got kind %d, argument %d, %d bytes, code %v", v.hex, kind, arg, next, code)
		}
	}
	for _, v := range []struct {
		n     int
		hex   string
		total int
	}{{15, "ef", 16}, {16, "f001", 18}, {31, "ff01", 33}, {2047, "ff7f", 2049}, {262143, "ffff7f", 262146}, {262144, "f0808001", 262148}} {
		got := appendText(nil, strings.Repeat("x", v.n))
		if len(got) != v.total || !strings.HasPrefix(hex.EncodeToString(got[:5]), v.hex) {
			t.Errorf("text of %d: want header %s and %d bytes, got %x and %d", v.n, v.hex, v.total, got[:5], len(got))
		}
	}
}

// Integers take the fewest bytes, and read back through every type that holds them.
func TestIntegerVectors(t *testing.T) {
	for _, v := range integerVectors {
		n, _ := new(big.Int).SetString(v.value, 10)
		var in []any
		switch {
		case v.unsigned:
			in = append(in, n.Uint64())
		case n.IsInt64():
			in = append(in, n.Int64(), n)
		default:
			in = append(in, n)
		}
		for _, x := range in {
			got, err := Marshal(x)
			if err != nil || hex.EncodeToString(got[4:]) != v.hex {
				t.Errorf("%T %s: want %s, got %x, %v", x, v.value, v.hex, got, err)
			}
			out := reflect.New(reflect.TypeOf(x))
			if err := Unmarshal(got, out.Interface()); err != nil || fmt.Sprint(out.Elem()) != v.value {
				t.Errorf("%s: want %s, got %v, %v", v.hex, v.value, out.Elem(), err)
			}
		}
	}
}

type vecNumbers struct {
	U8   uint8   `pot:"u8"`
	U16  uint16  `pot:"u16"`
	Char uint32  `pot:"char"`
	U32  uint32  `pot:"u32"`
	U64  uint64  `pot:"u64"`
	U128 uint64  `pot:"u128"`
	I8   int8    `pot:"i8"`
	I16  int16   `pot:"i16"`
	I32  int32   `pot:"i32"`
	I64  int64   `pot:"i64"`
	I128 int64   `pot:"i128"`
	F32  float32 `pot:"f32"`
	F64  float64 `pot:"f64"`
}

type vecExtremes struct {
	U8   uint8    `pot:"u8"`
	U16  uint16   `pot:"u16"`
	Char uint32   `pot:"char"`
	U32  uint32   `pot:"u32"`
	U64  uint64   `pot:"u64"`
	U128 *big.Int `pot:"u128"`
	I8   int8     `pot:"i8"`
	I16  int16    `pot:"i16"`
	I32  int32    `pot:"i32"`
	I64  int64    `pot:"i64"`
	I128 big.Int  `pot:"i128"`
	F32  float32  `pot:"f32"`
	F64  float64  `pot:"f64"`
}

func extremes(f32 float32, f64 float64) vecExtremes {
	top := new(big.Int).Lsh(big.NewInt(1), 128)
	low := new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 127))
	return vecExtremes{255, math.MaxUint16, 0x10ffff, math.MaxUint32, math.MaxUint64, top.Sub(top, big.NewInt(1)),
		-128, math.MinInt16, math.MinInt32, math.MinInt64, *low, f32, f64}
}

// vecEnum is the enum of the vectors as an interface, vecUnit and so on its variants.
type vecEnum interface{ enum() }

type (
	vecUnit  struct{}
	vecTuple uint64
	vecTwo   [2]uint64
	vecArg   struct {
		Arg uint64 `pot:"arg"`
	}
)

func (vecUnit) enum()  {}
func (vecTuple) enum() {}
func (vecTwo) enum()   {}
func (vecArg) enum()   {}

func vecUnions(t testing.TB) *Unions {
	t.Helper()
	u := NewUnions()
	err := RegisterUnion(u, map[string]vecEnum{"Unit": vecUnit{}, "Tuple": vecTuple(0), "TupleTwoArgs": vecTwo{}, "Struct": vecArg{}})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

type vecUser struct {
	ID   uint64 `pot:"id"`
	Name string `pot:"name"`
}

type vecCanary struct {
	Name string `pot:"name"`
	ID   uint64 `pot:"id"`
}

type vecTupleStruct struct {
	_ struct{} `pot:",tuple"`
	A uint32
	B uint8
}

type vecStrings struct {
	Bytes    []uint16 `pot:"bytes"` // a plain list in the original
	Borrowed []byte   `pot:"bytes_borrowed"`
	Slice    []byte   `pot:"serde_bytes_byte_slice"`
	Vec      []byte   `pot:"serde_bytes_byte_vec"`
	Ref      string   `pot:"str_ref"`
	String   string   `pot:"string"`
}

type vecLog struct {
	Level     string  `pot:"level,enum"`
	UserID    string  `pot:"user_id"`
	Timestamp string  `pot:"timestamp"`
	Request   string  `pot:"request"`
	Message   *string `pot:"message"`
	Code      uint16  `pot:"code"`
	Size      uint64  `pot:"size"`
}

type vecArchive struct {
	Entries []vecLog `pot:"entries"`
}

func vecLogOf(level string, message *string) vecLog {
	return vecLog{level, "brain_ebert", "2021-06-28T19:46:57.123456789Z", "/usr/share/error.txt", message, 404, 0x0123456789abcdef}
}

// vecOpenMap writes itself as a map of unknown length.
type vecOpenMap []any

func (m vecOpenMap) MarshalPotTo(w *Writer) error {
	w.WriteOpenMap()
	for _, v := range m {
		if err := w.Write(v); err != nil {
			return err
		}
	}
	w.CloseMap()
	return nil
}

type newtype uint32

// encodeVectors are values with their payloads in the modes Full and V4; an
// empty second one means that they are the same.
func encodeVectors() []struct {
	value    any
	full, v4 string
} {
	text := "Voluptas et."
	return []struct {
		value    any
		full, v4 string
	}{
		{struct{}{}, "01", ""},
		{(*uint64)(nil), "00", ""},
		{new(uint64), "4000", ""},
		{uint64(math.MaxUint64), "47ffffffffffffffff", ""},
		{true, "03", ""},
		{false, "02", ""},
		{0.0, "610000", ""},
		{math.Copysign(0, -1), "610080", ""},
		{1.0, "61003c", ""},
		{-1.0, "6100bc", ""},
		{0.5, "610038", ""},
		{2.0, "610040", ""},
		{65504.0, "61ff7b", ""},
		{65505.0, "6300e17f47", ""},
		{65536.0, "6300008047", ""},
		{0.1, "679a9999999999b93f", ""},
		{0.3333333333333333, "67555555555555d53f", ""},
		{math.Inf(1), "61007c", ""},
		{math.Inf(-1), "6100fc", ""},
		{1.7976931348623157e308, "67ffffffffffffef7f", ""},
		{-1.7976931348623157e308, "67ffffffffffffefff", ""},
		{2.2250738585072014e-308, "670000000000001000", ""},
		{3.141592653589793, "67182d4454fb210940", ""},
		{6.103515625e-5, "610004", ""},
		{5.960464477539063e-8, "610100", ""},
		{math.Float64frombits(0x7ff8 << 48), "67000000000000f87f", ""},
		{float32(0), "610000", ""},
		{float32(1), "61003c", ""},
		{float32(0.1), "63cdcccc3d", ""},
		{float32(math.MaxFloat32), "63ffff7f7f", ""},
		{float32(-math.MaxFloat32), "63ffff7fff", ""},
		{math.Float32frombits(0x7fc00000), "630000c07f", ""},
		{uint32('a'), "4061", ""},
		{uint32('€'), "41ac20", ""},
		{uint32(0x10ffff), "42ffff10", ""},
		{"", "e0", ""},
		{"€", "e3e282ac", ""},
		{strings.Repeat("x", 15), "ef787878787878787878787878787878", ""},
		{[]byte{0xfe, 0xed, 0xd0, 0xd0}, "e4feedd0d0", ""},
		{[]uint16{'h', 'e', 'l', 'l', 'o'}, "8540684065406c406c406f", ""},
		{[]uint64{}, "80", ""},
		{[]uint64{0, 1}, "8240004001", ""},
		{struct {
			_ struct{} `pot:",tuple"`
			A int32
			B bool
			C int32
		}{A: 1, B: true, C: 3}, "832001032003", ""},
		{vecTupleStruct{A: 1, B: 2}, "8240014002", ""},
		{newtype(7), "4007", ""},
		{map[string]uint8{"a": 1, "b": 2}, "a2e1614001e1624002", ""},
		{map[uint32]string{1: "x"}, "a14001e178", ""},
		{map[string]int{}, "a0", ""},
		{vecOpenMap{"a", uint8(1), "b", true}, "05e1614001e1620306", ""},
		{vecOpenMap{}, "0506", ""},
		{vecUser{42, "ecton"}, "a2c46964402ac86e616d65e56563746f6e", ""},
		{vecCanary{"coalmine", 0xfeedd0d0deadbeef}, "a2c86e616d65e8636f616c6d696e65c4696447efbeadded0d0edfe", ""},
		{[]vecEnum{vecTuple(0)}, "8104ca5475706c654000", ""},
		{[]vecEnum{vecUnit{}}, "8104c8556e6974", "81c8556e6974"},
		{[]vecEnum{vecUnit{}, vecTuple(0)}, "8204c8556e697404ca5475706c654000", "82c8556e697404ca5475706c654000"},
		{[]vecEnum{vecUnit{}, vecUnit{}, vecTuple(1), vecTuple(2)},
			"8404c8556e697404c104ca5475706c65400104c34002", "84c8556e6974c104ca5475706c65400104c34002"},
		{vecNumbers{}, "adc475384000c67531364000c8636861724000c67533324000c67536344000c8753132384000c469382000c66931362000c66933322000c66936342000c8693132382000c6663332610000c6663634610000", ""},
		{extremes(1, 1), "adc4753840ffc675313641ffffc86368617242ffff10c675333243ffffffffc675363447ffffffffffffffffc8753132384fffffffffffffffffffffffffffffffffc469382080c6693136210080c66933322300000080c6693634270000000000000080c8693132382f00000000000000000000000000000080c666333261003cc666363461003c", ""},
		{extremes(math.MaxFloat32, -math.MaxFloat64), "adc4753840ffc675313641ffffc86368617242ffff10c675333243ffffffffc675363447ffffffffffffffffc8753132384fffffffffffffffffffffffffffffffffc469382080c6693136210080c66933322300000080c6693634270000000000000080c8693132382f00000000000000000000000000000080c666333263ffff7f7fc666363467ffffffffffffefff", ""},
		{[]vecNumbers{{}, {}}, "82adc475384000c67531364000c8636861724000c67533324000c67536344000c8753132384000c469382000c66931362000c66933322000c66936342000c8693132382000c6663332610000c6663634610000adc14000c34000c54000c74000c94000cb4000cd2000cf2000d1012000d3012000d5012000d701610000d901610000", ""},
		{vecStringsValue(), "a6ca62797465738540684065406c406c406fdc0162797465735f626f72726f776564e568656c6c6fdc0273657264655f62797465735f627974655f736c696365e568656c6c6fd80273657264655f62797465735f627974655f766563e5776f726c64ce7374725f726566e568656c6c6fcc737472696e67e5776f726c64", ""},
		{vecLogOf("Info", nil), "a7ca6c6576656c04c8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301",
			"a7ca6c6576656cc8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301"},
		{vecArchive{[]vecLog{vecLogOf("Info", nil), vecLogOf("Error", &text)}}, "a1ce656e747269657382a7ca6c6576656c04c8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301a7c304ca4572726f72c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cdec566f6c75707461732065742ecf419401d10147efcdab8967452301",
			"a1ce656e747269657382a7ca6c6576656cc8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301a7c3ca4572726f72c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cdec566f6c75707461732065742ecf419401d10147efcdab8967452301"},
		{vecArchive{[]vecLog{vecLogOf("Info", nil), vecLogOf("Info", nil), vecLogOf("Info", nil)}}, "a1ce656e747269657383a7ca6c6576656c04c8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301a7c304c5c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cd00cf419401d10147efcdab8967452301a7c304c5c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cd00cf419401d10147efcdab8967452301",
			"a1ce656e747269657383a7ca6c6576656cc8496e666fce757365725f6964eb627261696e5f6562657274d20174696d657374616d70fe01323032312d30362d32385431393a34363a35372e3132333435363738395ace72657175657374f4012f7573722f73686172652f6572726f722e747874ce6d65737361676500c8636f6465419401c873697a6547efcdab8967452301a7c3c5c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cd00cf419401d10147efcdab8967452301a7c3c5c7eb627261696e5f6562657274c9fe01323032312d30362d32385431393a34363a35372e3132333435363738395acbf4012f7573722f73686172652f6572726f722e747874cd00cf419401d10147efcdab8967452301"},
	}
}

func vecStringsValue() vecStrings {
	return vecStrings{[]uint16{'h', 'e', 'l', 'l', 'o'}, []byte("hello"), []byte("hello"), []byte("world"), "hello", "world"}
}

// Values become the bytes that the original writes, in both modes, and its
// bytes become the values again.
func TestEncodeVectors(t *testing.T) {
	unions := vecUnions(t)
	for _, v := range encodeVectors() {
		for _, mode := range []Mode{Full, V4} {
			want := v.full
			if mode == V4 && v.v4 != "" {
				want = v.v4
			}
			want = map[Mode]string{Full: "506f7400", V4: "506f7401"}[mode] + want
			opts := EncodeOptions{Mode: mode, Deterministic: true, Unions: unions}
			got, err := opts.Marshal(v.value)
			if err != nil || hex.EncodeToString(got) != want {
				t.Errorf("%T %v, %v:\nwant %s\ngot  %x, %v", v.value, v.value, mode, want, got, err)
				continue
			}
			if _, writesOnly := v.value.(vecOpenMap); writesOnly {
				continue
			}
			back := reflect.New(reflect.TypeOf(v.value))
			if err := (&DecodeOptions{Unions: unions}).Unmarshal(got, back.Interface()); err != nil {
				t.Errorf("%s into %T: %v", want, v.value, err)
				continue
			}
			again, err := opts.Marshal(back.Interface())
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("%T %v: decoded to %v, which is %x, %v", v.value, v.value, back.Elem(), again, err)
			}
		}
	}
}

// Serde writes flattened structs as open maps with text keys; they are read
// into structs, by name and by inline maps.
func TestOpenMapIntoStruct(t *testing.T) {
	type inner struct{ Field string }
	var got struct {
		inner `pot:",inline"`
		Rest  map[string]uint64 `pot:",inline"`
	}
	payload := unhex(t, "506f7400"+"05"+"e5"+hex.EncodeToString([]byte("Field"))+"e178"+"e5"+hex.EncodeToString([]byte("Tuple"))+"4003"+"06")
	if err := Unmarshal(payload, &got); err != nil || got.Field != "x" || got.Rest["Tuple"] != 3 {
		t.Errorf("want Field x and Rest Tuple 3, got %+v, %v", got, err)
	}
}

// The persistent symbols of sender and receiver follow each other, and their
// serialized form is the original's.
func TestPersistentSymbolVectors(t *testing.T) {
	type payload struct {
		A uint64 `pot:"a"`
		B uint64 `pot:"b"`
	}
	sender, receiver := NewTable(nil), NewTable(nil)
	enc := EncodeOptions{Mode: Full, Table: sender, Link: true}
	dec := DecodeOptions{Table: receiver, Link: true}
	for i, v := range []struct {
		value payload
		want  string
	}{{payload{0, 0}, "506f7400a2c2614000c2624000"}, {payload{1, 2}, "506f7400a2c14001c34002"}} {
		got, err := enc.Marshal(v.value)
		if err != nil || hex.EncodeToString(got) != v.want {
			t.Errorf("payload %d: want %s, got %x, %v", i, v.want, got, err)
		}
		var back payload
		if err := dec.Unmarshal(got, &back); err != nil || back != v.value {
			t.Errorf("payload %d: want %v, got %v, %v", i, v.value, back, err)
		}
	}
	for _, table := range []*Table{sender, receiver} {
		if got, err := table.MarshalBinary(); err != nil || hex.EncodeToString(got) != "506f740082e161e162" {
			t.Errorf("serialized table: got %x, %v", got, err)
		}
	}
	shared := NewTable(nil)
	if err := shared.UnmarshalBinary(unhex(t, "506f740082e26964e46e616d65")); err != nil {
		t.Fatal(err)
	}
	got, err := (&EncodeOptions{Mode: Full, Table: shared}).Marshal(vecUser{42, "ecton"})
	if want := "506f7400a2c1402ac3e56563746f6e"; err != nil || hex.EncodeToString(got) != want {
		t.Errorf("want %s, got %x, %v", want, got, err)
	}
	v4 := EncodeOptions{Table: NewTable(nil), Link: true, Unions: vecUnions(t)}
	got, err = v4.Marshal([]vecEnum{vecUnit{}, vecTuple(0)})
	if want := "506f740182c8556e697404ca5475706c654000"; err != nil || hex.EncodeToString(got) != want {
		t.Errorf("want %s, got %x, %v", want, got, err)
	}
}

// Without types the original's values are seen, but for the one that it could
// only see by reading zeros past the end.
func TestUntypedVectors(t *testing.T) {
	for _, v := range []struct {
		hex  string
		want any
		code Code
	}{
		{"506f74008204c8556e697404ca5475706c654000", nil, ErrTruncated},
		{"506f740182c8556e697404ca5475706c654000", []any{"Unit", &Variant{Name: "Tuple", Value: uint64(0)}}, 0},
		{"506f740004cc537472756374a1c66172674003", &Variant{Name: "Struct", Value: map[string]any{"arg": uint64(3)}}, 0},
		{"506f7400a2c46964402ac86e616d65e56563746f6e", map[string]any{"id": uint64(42), "name": "ecton"}, 0},
		{"506f7400e2feed", []byte{0xfe, 0xed}, 0},
		{"506f740005e1614001e1620306", map[string]any{"a": uint64(1), "b": true}, 0},
	} {
		var got any
		err := Unmarshal(unhex(t, v.hex), &got)
		if v.code != 0 && !errors.Is(err, v.code) || v.code == 0 && (err != nil || !cmp.Equal(got, v.want)) {
			t.Errorf("%s: want %v %v, got %v, %v", v.hex, v.want, v.code, got, err)
		}
	}
}

// decodeVectors are payloads with their headers, a value of the type to decode
// into and what comes of it: a value, or a code.
var decodeVectors = []struct {
	name string
	hex  string
	into any
	want any
}{
	{"version 2", "506f740201", struct{}{}, ErrHeader},
	{"bad magic", "506f640001", struct{}{}, ErrHeader},
	{"empty input", "", struct{}{}, ErrHeader},
	{"header only", "506f7400", struct{}{}, ErrTruncated},
	{"special 7", "506f740007", struct{}{}, ErrSyntax},
	{"int of 11 bytes", "506f74002a0000000000000000000000", int64(0), ErrSyntax},
	{"float of 1 byte", "506f74006000", 0.0, ErrSyntax},
	{"uint of 5 bytes", "506f7400440102030405", uint64(0), ErrSyntax},
	{"uint of 7 bytes", "506f74004601020304050607", uint64(0), ErrSyntax},
	{"1 in 8 bytes", "506f7400470100000000000000", uint8(0), uint8(1)},
	{"u8 from int 1", "506f74002001", uint8(0), uint8(1)},
	{"u8 from int -1", "506f740020ff", uint8(0), ErrRange},
	{"u8 from uint 256", "506f7400410001", uint8(0), ErrRange},
	{"i8 from uint 128", "506f74004080", int8(0), ErrRange},
	{"f64 from int 1", "506f74002001", 0.0, 1.0},
	{"f64 from uint 1", "506f74004001", 0.0, ErrType},
	{"u8 from float", "506f740061003c", uint8(0), ErrType},
	{"f32 from f64 0.1", "506f7400679a9999999999b93f", float32(0), ErrRange},
	{"bool from uint 2", "506f74004002", false, true},
	{"bool from int 0", "506f74002000", true, false},
	{"bytes from a sequence", "506f74008240014002", []byte(nil), []byte{1, 2}},
	{"list from bytes", "506f7400e20102", []uint16(nil), ErrType},
	{"text from a symbol", "506f7400c46964", "", "id"},
	{"text that is not UTF-8", "506f7400e2ffff", "", ErrUTF8},
	{"bool from unit", "506f740001", true, false},
	{"map from none", "506f740000", map[string]int{"a": 1}, map[string]int(nil)},
	{"pointer from unit", "506f740001", (*struct{})(nil), &struct{}{}},
	{"pointer to pointer from none", "506f740000", (**uint8)(nil), (**uint8)(nil)},
	{"enum from variant and bytes", "506f740004e4556e6974", []vecEnum(nil), vecUnit{}},
	{"enum from a symbol", "506f7400c8556e6974", []vecEnum(nil), vecUnit{}},
	{"enum from bytes", "506f7400e4556e6974", []vecEnum(nil), vecUnit{}},
	{"struct with text keys", "506f7400a2e26964402ae46e616d65e56563746f6e", vecUser{}, vecUser{42, "ecton"}},
	{"struct from a sequence", "506f740082402ae56563746f6e", vecUser{}, ErrType},
	{"struct from an open map", "506f740005c46964402ac86e616d65e56563746f6e06", vecUser{}, vecUser{42, "ecton"}},
	{"unknown symbol", "506f7400c1", "", ErrSymbol},
	{"symbol not UTF-8", "506f7400c4ffff", "", ErrUTF8},
	{"bytes cut", "506f7400ea", []byte(nil), ErrTruncated},
	{"long header", "506f7400f1800078", []byte(nil), []byte{120}},
	{"end of map alone", "506f740006", vecUser{}, ErrSyntax},
	{"enum from bytes not UTF-8", "506f740004e4ffffffff", []vecEnum(nil), ErrUTF8},
	{"symbol text not UTF-8", "506f7400c4e4ffffffff", "", ErrUTF8},
	{"text from unit", "506f740001", "x", ""},
	{"u128 from none", "506f740000", *big.NewInt(3), *big.NewInt(0)},
	{"i128 from unit", "506f740001", *big.NewInt(3), *big.NewInt(0)},
	{"bool from none", "506f740000", true, false},
	{"f64 from unit", "506f740001", 1.0, 0.0},
	{"enum from unit", "506f740001", []vecEnum(nil), ErrType},
	{"text of 2^60 bytes", "506f7400f0808080808080808001", "", ErrTruncated},

	// The original accepts these, or fails to end; here they are errors.
	{"magic with more bits", "7fffff0001", struct{}{}, ErrHeader},
	{"uint of 1 byte cut", "506f740040", uint8(0), ErrTruncated},
	{"uint of 4 bytes cut", "506f7400430102", uint32(0), ErrTruncated},
	{"sequence of 3 with 1", "506f7400834007", []*uint8(nil), ErrTruncated},
	{"struct cut", "506f7400a2c46964402a", vecUser{}, ErrTruncated},
	{"125,968 absent options", "506f740090c13d", []*uint8(nil), ErrTruncated},
	{"open map never closed", "506f740005", any(nil), ErrTruncated},
	{"open map never closed into a map", "506f740005", map[string]int(nil), ErrTruncated},
	{"open map never closed into a struct", "506f740005", vecUser{}, ErrTruncated},
	{"huge count of bytes", "506f74009fffffffffffffffff0f", []byte(nil), ErrTruncated},
	{"huge count of a list", "506f74009fffffffffffffffff0f", []int(nil), ErrTruncated},
	{"huge count of a map", "506f7400bfffffffffffffffff0f", map[string]int(nil), ErrTruncated},
	{"huge count of a struct", "506f7400bfffffffffffffffff0f", vecUser{}, ErrTruncated},
	{"huge count without a type", "506f7400bfffffffffffffffff0f", any(nil), ErrTruncated},
	{"uint argument 2^64-1", "506f74005fffffffffffffffff0f", uint64(0), ErrSyntax},
	{"header of 65 bits", "506f74005fffffffffffffffff1f", uint64(0), ErrSyntax},
	{"header without an end", "506f74005fffffffffffffffffffffff", uint64(0), ErrSyntax},
	{"trailing byte", "506f7400400100", uint8(0), ErrTrailing},
	{"member twice", "506f7400a2c469644001c14002", vecUser{}, ErrDuplicate},
	{"key twice", "506f7400a2e1614001e1614002", map[string]int(nil), ErrDuplicate},
	{"key twice without a type", "506f7400a2e1614001e1614002", any(nil), ErrDuplicate},
	{"number as a key of a text map", "506f7400a140014002", map[string]any(nil), ErrType},
	{"bytes as a key of a text map", "506f7400a1e1ff4002", map[string]any(nil), ErrType},
	{"variant unknown", "506f7401c4556e", []vecEnum(nil), ErrUnknownVariant},
}

func TestDecodeVectors(t *testing.T) {
	dec := DecodeOptions{Unions: vecUnions(t)}
	for _, v := range decodeVectors {
		t.Run(v.name, func(t *testing.T) {
			p := reflect.New(reflect.TypeOf(&v.into).Elem())
			if v.into != nil {
				p = reflect.New(reflect.TypeOf(v.into))
				p.Elem().Set(reflect.ValueOf(v.into))
			}
			if reflect.TypeOf(v.into) == reflect.TypeFor[[]vecEnum]() {
				p = reflect.New(reflect.TypeFor[vecEnum]())
			}
			err := dec.Unmarshal(unhex(t, v.hex), p.Interface())
			if code, isCode := v.want.(Code); isCode {
				var e *Error
				if !errors.As(err, &e) || e.Code != code || e.Offset < 0 || int(e.Offset) > len(v.hex)/2 {
					t.Errorf("want %v with an offset, got %v, value %v", code, err, p.Elem())
				}
				return
			}
			got := p.Elem().Interface()
			if b, ok := got.(big.Int); ok {
				w := v.want.(big.Int)
				if err != nil || b.Cmp(&w) != 0 {
					t.Errorf("want %v, got %v, %v", &w, &b, err)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, v.want) {
				t.Errorf("want %#v, got %#v, %v", v.want, got, err)
			}
		})
	}
}

// The budget counts what decoding allocates, symbols and elements included, so
// that it refuses at least what the original's budget of integers and texts does.
func TestBudget(t *testing.T) {
	strs, _ := Marshal(vecStringsValue())
	users, _ := Marshal([]vecUser{{42, "ecton"}, {43, "ecton"}})
	ext, _ := Marshal(extremes(1, 1))
	exact := func(payload []byte, into func() any) int64 {
		for n := int64(1); n < 1<<20; n++ {
			err := (&DecodeOptions{MaxAlloc: n}).Unmarshal(payload, into())
			if err == nil {
				return n
			}
			if !errors.Is(err, ErrBudget) {
				t.Fatalf("budget %d: %v", n, err)
			}
		}
		return -1
	}
	for _, v := range []struct {
		name     string
		payload  []byte
		into     func() any
		original int64 // the least that the original accepts
		want     int64
	}{
		{"texts and bytes", strs, func() any { return new(vecStrings) }, 30, 6*int64(symbolCost) + 5*2 + 25},
		{"two users", users, func() any { return new([]vecUser) }, 12, 2*int64(reflect.TypeFor[vecUser]().Size()) + 2*int64(symbolCost) + 10},
		{"extremes", ext, func() any { return new(vecExtremes) }, 78, 13*int64(symbolCost) + 16 + int64(reflect.TypeFor[big.Int]().Size()) + 16},
	} {
		if got := exact(v.payload, v.into); got != v.want || got < v.original {
			t.Errorf("%s: want %d (at least %d), got %d", v.name, v.want, v.original, got)
		}
	}
	if err := (&DecodeOptions{MaxAlloc: 9}).Unmarshal(unhex(t, "506f7400ea"), new([]byte)); !errors.Is(err, ErrTruncated) {
		t.Errorf("bytes cut: want %v, got %v", ErrTruncated, err)
	}
}
