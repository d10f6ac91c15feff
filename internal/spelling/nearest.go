package spelling

// Nearest returns the candidate with the least edit distance to word, and that
// distance, in bytes. Ties go to the first; without candidates it returns "".
func Nearest(word string, candidates []string) (best string, least int) {
	for _, candidate := range candidates {
		if d := distance(word, candidate); best == "" || d < least {
			best, least = candidate, d
		}
	}
	return best, least
}

// distance is the Levenshtein distance: the number of bytes to insert, delete or
// replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
