// Package pot is a compact, self-describing, safe binary codec for Go values.
//
// It writes and reads the wire format of the Rust crate Pot 3, in which each
// name of a struct's field is written once in a payload and then referred to by
// a number, and extends it with tables that outlive the payload and with
// shapes, which make a record as small as that of a format with a schema.
//
//	payload, err := pot.Marshal(v)
//	err = pot.Unmarshal(payload, &v)
//
// Many small values of the same types are best kept with a [Table], which holds
// their names:
//
//	table := pot.NewTable(nil)
//	enc := pot.EncodeOptions{Mode: pot.Shapes, Table: table}
//	dec := pot.DecodeOptions{Table: table}
//
// [View] reads single values out of a payload without decoding it, quickest
// along a [Path] that is used for many payloads, [ToJSON],
// [FromJSON], [ToCBOR], [FromCBOR] and [Transcode] convert payloads without Go
// types, [Canonical] makes equal values equal bytes, [Explain] and [Format]
// show payloads to people.
//
// All functions, options, tables and union sets may be used by many goroutines
// at once unless they say otherwise; an Encoder, Decoder, View, Value, Writer
// or Reader belongs to one. Errors are of type [*Error] with a [Code], the
// offset of the cause in the input and the path of the Go value.
//
// # Go types
//
//	bool                         true, false
//	int..int64                   int
//	uint..uint64, uintptr        uint
//	big.Int                      int if it fits in 128 signed bits, else uint
//	float32, float64             float, narrowed if nothing is lost
//	string                       bytes, which must be UTF-8
//	string with option enum      unit variant
//	[]byte, [n]byte              bytes; a nil slice is empty
//	slices, arrays               sequence; a nil slice is empty
//	maps, keys of any kind       map; a nil map is empty
//	structs                      map with symbols as keys, or a record
//	structs with option tuple    sequence, on a field _ struct{} `pot:",tuple"`
//	structs without fields       unit
//	nil pointer or interface     none
//	pointers, interfaces         what they point to or hold
//	interfaces in [Unions]       variant
//	time.Time                    text by RFC 3339 with nanoseconds, or with an
//	                             option unix, unixmilli, unixmicro, unixnano int
//	time.Duration                int of nanoseconds
//	[Raw]                        the value that it holds
//	[Variant]                    variant
//
// A type's own methods come first, in the order [MarshalerTo],
// encoding.BinaryMarshaler (bytes), encoding.TextMarshaler (text), and likewise
// for decoding. Channels, functions and complex numbers are not supported.
//
// The members of structs are named by the tag pot:"name,options", or else by
// the name in a json tag, or else by the field's name; a tag of "-" leaves a
// field out, and Go's rules of visibility decide about embedded structs.
// The options are omitzero (leave out what is zero, or whose method IsZero says
// so), omitempty (leave out false, 0, nil and what has no length), inline (the
// members of a struct are members of the outer one; a map with string keys takes
// the members that no field has), enum and tuple. Names are matched exactly.
//
// Decoding converts as the original does. None and unit become the zero value
// of any type, and none becomes a nil pointer. Either kind of integer is read
// into any integer type that the number fits in, and into bool as "not zero". A
// float is read from a float that fits without loss or from an int, not from a
// uint. Text is read from bytes or a symbol, bytes also from a sequence of
// integers, structs and maps from maps, open maps and records, a unit variant
// also from a bare symbol or text. Members that a struct lacks are skipped,
// members that the input lacks are left as they are. Arrays must match in
// length. A key that occurs twice is an error.
//
// Into an empty interface decode: int as int64 and uint as uint64, or both as
// *big.Int if they do not fit; float as float64; bytes as string if they are
// UTF-8 and else as []byte; sequence as []any; map and record as
// map[string]any, or as map[any]any if a key is not text; none and unit as nil;
// a unit variant as its name and another as *[Variant].
//
// Decoding over existing values reuses the memory of slices, and that of maps
// and pointers outside of slices; elements of a reused slice keep nothing of
// what they held.
//
// # Limits
//
// Input is never trusted: see [DecodeOptions] for the depth limit, the budget
// and what they count. A length or count that the bytes that are left cannot
// hold is refused before anything is allocated for it. What is skipped, because
// a struct lacks it or because a view passes it, is checked for structure only.
//
// # Wire format
//
// A payload is a header of four bytes and one value. The header is the letters
// "Pot" and a version: 0 for mode Full, 1 for V4, 128 for Shapes. Users may
// agree on a mode and leave the header out.
//
// A value consists of atoms. An atom begins with a byte of a kind (bits 7 to 5),
// a flag (bit 4) and the low four bits of an argument. If the flag is set,
// further bytes follow with seven more bits of the argument each, low bits
// first; the top bit of each tells whether another one follows. The argument has
// at most 64 bits; more are an error, while needless bytes are accepted. So
// arguments up to 15 take one byte, up to 2,047 two, up to 262,143 three.
//
//	kind      argument             then
//	0 special its number           see below
//	1 int     width - 1            two's complement, little-endian
//	2 uint    width - 1            little-endian
//	3 float   width - 1            IEEE 754, little-endian
//	4 seq     number of elements   the elements
//	5 map     number of pairs      key, value, key, value ...
//	6 symbol  2 * length           the text of a new symbol
//	          2 * number + 1       nothing: a symbol defined before
//	7 bytes   length               the bytes, or text in UTF-8
//
// Integers are 1, 2, 3, 4, 6, 8 or 16 bytes wide and written in the fewest;
// floats are 2, 4 or 8 and narrowed if that loses nothing, except NaN. Text and
// bytes are not told apart.
//
// The specials, which are one byte each unless said otherwise:
//
//	0 none          an absent optional value
//	1 unit          the value of a type that has one value
//	2 false
//	3 true
//	4 variant       then the name, as symbol or bytes, then the value
//	5 open map      then pairs, until
//	6 end of map
//
// Symbols are numbered from 0 in the order of their definitions. They are the
// keys of structs and the names of variants; keys of maps are bytes. A unit
// variant is a symbol alone; in mode Full it is special 4 and the symbol, so
// that only a reader who knows the type can tell it from a variant with a
// value: one without types takes it for a unit variant if the input ends there
// or goes on with a symbol or an end of map, none of which can be a value in
// that mode.
//
// # Shapes
//
// Mode Shapes is V4 with three more specials:
//
//	7 absent        in place of a record's value: the member is left out
//	8 definition    then a sequence of one or more symbols, all different,
//	                which is the next shape, then the values of a record of
//	                that shape without a head of their own
//	9+n record      of shape n, then the values, one for each of its symbols
//
// Shapes are numbered from 0 in the order of their definitions; a definition
// counts from its first byte, so that a record within the first record of its
// shape can refer to it. The first seven shapes are referred to in one byte, the
// next 2,032 in two. A record equals the map of its symbols and values without
// those that are absent. The points {1, 2} and {3, 0}, with fields x and y of
// type int8 of which y has the option omitzero, are after the header 50 6f 74 80:
//
//	82                 sequence of 2
//	08 82 c2 78 c2 79  definition of shape 0: symbols 0 "x" and 1 "y"
//	20 01 20 02        1, 2
//	09 20 03 07        record of shape 0: 3, absent
//
// A writer may write any struct or object as a map or as a record. This one
// writes structs as records, except those with an inline map, and objects
// without a Go type from the second time that their list of keys occurs.
//
// # Tables
//
// A table is a list of symbols and a list of shapes over them that exist before
// the payload begins. Payloads refer to its entries by the same numbers. Two
// ways to keep one must be agreed upon:
//
//   - Shared, the default: payloads hold no definitions, and a reader refuses
//     them. What a writer is missing it adds to the table, which must reach the
//     reader first by other means ([Table.AppendSince] and [Table.Apply]), or
//     it writes names in place as bytes. Any number of writers may share a table.
//   - Linked ([EncodeOptions.Link]): a definition in a payload adds to the
//     tables of both sides. Payloads are read in the order in which they were
//     written. This is how persistent symbol maps of the original work.
//
// A table without shapes is serialized as a payload of mode Full of a sequence
// of texts, as in the original; else as one of mode Shapes of two elements: the
// sequence of texts, and a sequence with, for each shape, the sequence of the
// numbers of its symbols as uints. An addition has four elements: the numbers of
// symbols and of shapes that it continues from, as uints, and the two lists.
//
// # Where this package is stricter than the original
//
// A payload that ends early, an open map without an end, a count that the rest
// of the input cannot hold, and a header that is not exactly "Pot" are errors;
// a key that occurs twice is one, too; and nesting is limited.
package pot
