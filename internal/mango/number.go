package mango

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/osierdb/osier/internal/keys"
)

// A number is the value of a JSON number: one written without fraction and
// exponent is that integer whatever its length, any other the nearest float64,
// which is an infinity if it is beyond the largest. That is also what keys
// holds, so an index orders numbers as selectors compare them.
type number struct {
	form numberForm
	int  int64   // formInt
	flt  float64 // formFloat
	neg  bool    // formBig
	abs  string  // formBig: decimal digits of an integer beyond int64
}

type numberForm uint8

const (
	formInt numberForm = iota
	formFloat
	formBig
)

// exactTens are the powers of ten that a float64 holds exactly.
var exactTens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// parseNumber returns the value of a JSON number, which is all of s.
func parseNumber(s string) (x number, ok bool) {
	i := 0
	neg := s != "" && s[0] == '-'
	if neg {
		i = 1
	}
	start := i
	var mant uint64 // of the digits, right while there are at most 18
	for ; i < len(s) && s[i]-'0' <= 9; i++ {
		mant = mant*10 + uint64(s[i]-'0')
	}
	digits := i - start
	if digits == 0 || digits > 1 && s[start] == '0' {
		return x, false
	}
	if i == len(s) {
		return integer(s[start:], neg, mant), true
	}
	fraction := 0
	if s[i] == '.' {
		dot := i
		for i++; i < len(s) && s[i]-'0' <= 9; i++ {
			mant = mant*10 + uint64(s[i]-'0')
		}
		if fraction = i - dot - 1; fraction == 0 {
			return x, false
		}
	}
	if i < len(s) && !isExponent(s[i:]) {
		return x, false
	}
	// Few digits over a small power of ten: both are exact, so one division
	// rounds correctly.
	if i == len(s) && digits+fraction <= 15 {
		f := float64(mant) / exactTens[fraction]
		if neg {
			f = -f
		}
		return number{form: formFloat, flt: f}, true
	}
	f, _ := strconv.ParseFloat(s, 64) // the only error left is the range's
	return number{form: formFloat, flt: f}, true
}

func isExponent(s string) bool {
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return s != ""
}

// integer returns the integer of the digits, whose value is mant if they are few.
func integer(digits string, neg bool, mant uint64) number {
	if len(digits) > 18 {
		u, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || u > math.MaxInt64 {
			return number{form: formBig, neg: neg, abs: digits}
		}
		mant = u
	}
	if neg {
		return number{int: -int64(mant)}
	}
	return number{int: int64(mant)}
}

// compareNumbers compares by exact value.
func compareNumbers(a, b number) int {
	switch {
	case a.form == formInt && b.form == formInt:
		return cmp.Compare(a.int, b.int)
	case a.form == formFloat && b.form == formFloat:
		return cmp.Compare(a.flt, b.flt)
	case a.form == formBig:
		return compareBig(a, b)
	case b.form == formBig:
		return -compareBig(b, a)
	case a.form == formInt:
		return compareIntFloat(a.int, b.flt)
	}
	return -compareIntFloat(b.int, a.flt)
}

func compareIntFloat(i int64, f float64) int {
	switch {
	case f >= 1<<63:
		return -1
	case f < -1<<63:
		return 1
	}
	whole := math.Trunc(f)
	if c := cmp.Compare(i, int64(whole)); c != 0 {
		return c
	}
	return cmp.Compare(0, f-whole)
}

// compareBig compares a formBig with any other number.
func compareBig(a, b number) int {
	sign := 1
	if a.neg {
		sign = -1
	}
	switch {
	case b.form == formInt:
		return sign
	case b.form == formBig && a.neg != b.neg:
		return sign
	case b.form == formBig && len(a.abs) != len(b.abs):
		return sign * cmp.Compare(len(a.abs), len(b.abs))
	case b.form == formBig:
		return sign * strings.Compare(a.abs, b.abs)
	case math.IsInf(b.flt, 0):
		return -int(math.Copysign(1, b.flt))
	case len(a.abs) > 309: // the largest float64 has 309 digits
		return sign
	}
	i, _ := new(big.Int).SetString(a.abs, 10)
	if a.neg {
		i.Neg(i)
	}
	return new(big.Float).SetInt(i).Cmp(new(big.Float).SetFloat64(b.flt))
}

// remainder returns what is left of an integer divided by d, with the sign of
// the integer.
func (x number) remainder(d int64) (r int64, ok bool) {
	switch x.form {
	case formFloat:
		return 0, false
	case formInt:
		if d == -1 { // MinInt64 / -1 overflows
			return 0, true
		}
		return x.int % d, true
	}
	abs := uint64(d)
	if d < 0 {
		abs = -abs
	}
	var left uint64
	for i := range len(x.abs) {
		hi, lo := bits.Mul64(left, 10)
		lo, carry := bits.Add64(lo, uint64(x.abs[i]-'0'), 0)
		_, left = bits.Div64(hi+carry, lo, abs)
	}
	if x.neg {
		return -int64(left), true
	}
	return int64(left), true
}

// appendNumberKey appends the key of the number whose text is s.
func appendNumberKey(dst []byte, s string) ([]byte, bool) {
	x, ok := parseNumber(s)
	if !ok {
		return dst, false
	}
	switch x.form {
	case formInt:
		return keys.AppendInt(dst, x.int), true
	case formFloat:
		return keys.AppendFloat(dst, x.flt), true
	}
	dst, err := keys.Append(dst, json.Number(s))
	return dst, err == nil
}
