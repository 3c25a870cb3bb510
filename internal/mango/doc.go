// Package mango answers which documents a declarative query means: CouchDB's
// selectors, compiled once and matched over stored JSON, with what belongs to
// them: sorts, projections, the bounds that a selector puts on an index, whole
// _find requests, and SwapQuery as another spelling.
//
// It is pure: no storage, no clock, nothing shared that changes. Compiled values
// ([Selector], [Keyer], [Projection]) may be used by any number of goroutines.
//
// # Selectors
//
// A selector is a JSON object of fields and what they shall be:
//
//	{"city": "Oslo", "age": {"$gte": 18, "$lt": 65}, "$or": [{"a.b": 1}, {"tags": {"$in": ["x"]}}]}
//
// Members all have to hold. A field is a path: names joined by dots, or nested
// objects; an array's elements are named 0, 1, …; a backslash takes the special
// meaning from a dot, a backslash, or a dollar sign in front. A value without an
// operator means $eq, {} included.
//
//	$and $or $nor   [selector, …]   all, any, none
//	$not            selector        the contrary
//	$eq $ne $lt $lte $gt $gte       comparison with any value
//	$in $nin        [value, …]      equals one, none; of an array, any element does
//	$all            [value, …]      an array that has them all, and is not asked for
//	                                none; or, of [[…]], that array itself
//	$exists         true, false     the field is there
//	$type           "null", "boolean", "number", "string", "array", "object"
//	$mod            [divisor, rest] of integers
//	$regex          pattern         occurs in a string; package regexp's syntax
//	$beginsWith     prefix          of a string, byte for byte
//	$size           n               of an array
//	$elemMatch      selector        any element of an array
//	$allMatch       selector        all elements of an array that has some
//	$keyMapMatch    selector        any name of an object
//
// A missing field meets nothing but $exists: false, also when it is negated; a
// field below a value that is no object, and an index that an array does not
// have, do not even meet that.
//
// Values compare across types: null, false, true, numbers, strings, arrays,
// objects. Numbers compare by exact value; strings by a [Collation]; arrays and
// objects member by member in stored order, the shorter first. A document's _id
// and _rev compare by bytes, behind all values of other types.
//
// # Differences from CouchDB
//
// Regular expressions are Go's: characters are Unicode's, $ is only the end of
// the text, and what needs backtracking is an error. A $mod of 0 is an error of
// the selector. {} within other conditions, and a condition outside of any field,
// are errors wherever they stand. $all compares as $in does. An $or or $nor that
// stands alone without arguments matches nothing, as $and does. A backslash can be
// escaped. Selectors have limits: see [Options].
//
// # SwapQuery
//
// A SwapQuery is a JSON object of operators, with the fields below them:
//
//	{"=": {"City": "Oslo", "address": {"zip": "0150"}}, ">": {"IMDB Rating": 8}}
//
// All have to hold. Names are literal: a dot in one means nothing. An object in a
// field's place is not a value but the fields below it, so that "=" matches
// partially: each leaf has to be equal, other members may be there; {} asks for
// an object. Arrays are values, compared as a whole.
//
//	=  !=  >  >=  <  <=     the leaf compares so; see Selectors for the order
//	==  !==                 the value as a whole, objects too, is equal, is not
//	in  !in  all            $in, $nin, $all
//	^=  ~                   $beginsWith, $regex
//	exists  type  size  mod $exists, $type, $size, $mod
//	and  or                 [query, …]
//	not                     query
//
// The words and, or and not stand in an operator's place. An operator that is not
// in this list is an error. [Translate] returns the selector.
package mango
