package puzzle

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
)

const parts, partBits = 16, 4

// Solve returns the proof of a puzzle.
func Solve(puzzle string, difficulty int) string {
	var message [sha256.Size + 8]byte
	seed := sha256.Sum256([]byte(puzzle))
	copy(message[:], seed[:])
	var numbers [parts]string
	for part := range numbers {
		binary.BigEndian.PutUint32(message[sha256.Size:], uint32(part))
		number := uint32(0)
		for ; ; number++ {
			binary.BigEndian.PutUint32(message[sha256.Size+4:], number)
			hash := sha256.Sum256(message[:])
			if bits.LeadingZeros32(binary.BigEndian.Uint32(hash[:])) >= difficulty-partBits {
				break
			}
		}
		numbers[part] = strconv.FormatUint(uint64(number), 10)
	}
	return strings.Join(numbers[:], ".")
}
