package topic

import "hash/crc32"

// SumOf returns the CRC-32C of batches one after another, whose own checksums hold: it is made of these, and of the few bytes that
// they do not cover.
func SumOf(batches ...Batch) (sum uint32) {
	for _, b := range batches {
		sum = joinSums(sum, b.sum(), len(b))
	}
	return sum
}

// sum is SumOf one batch.
func (b Batch) sum() uint32 {
	return joinSums(crc32.Checksum(b[:atAttributes], Castagnoli), b.uint32(atChecksum), len(b)-atAttributes)
}

// joinSums returns the CRC-32C of two parts from those of each, and the length of the second in bytes.
//
// A checksum is a polynomial over GF(2), modulo that of CRC-32C: as many bytes more behind it multiply it by a power of x.
func joinSums(first, second uint32, length int) uint32 {
	for k := 3; length > 0; k++ { // a byte is x to the 2 to the 3
		if length&1 != 0 {
			first = multiply(first, powers[k])
		}
		length >>= 1
	}
	return first ^ second
}

// powers has x to the power of 2 to the index, for lengths of up to 512 MiB.
var powers = func() (powers [33]uint32) {
	powers[0] = 1 << 30
	for k := 1; k < len(powers); k++ {
		powers[k] = multiply(powers[k-1], powers[k-1])
	}
	return powers
}()

// multiply returns the product of two polynomials modulo that of CRC-32C. The highest bit is the coefficient of 1.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
