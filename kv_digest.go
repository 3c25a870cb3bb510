package osier

// KVDigest sums up a range of keys for KVRead.Digest: which there are, at which
// versions. Add them in order.
type KVDigest struct{ sum uint64 }

// NewKVDigest returns the digest of no keys.
func NewKVDigest() *KVDigest { return &KVDigest{14695981039346656037} }

// Add takes the next key in. Versions are never used twice for a key, so equal
// digests of two times mean, but for a chance of 1 in 2^64, that nothing changed.
func (d *KVDigest) Add(key string, version uint64) {
	const prime = 1099511628211
	for i := range len(key) {
		d.sum = (d.sum ^ uint64(key[i])) * prime
	}
	for i := range 8 {
		d.sum = (d.sum ^ version>>(8*i)&0xFF) * prime
	}
	d.sum = (d.sum ^ uint64(len(key))) * prime
}

// Sum returns the digest of what was added.
func (d *KVDigest) Sum() uint64 { return d.sum }
