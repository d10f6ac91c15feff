package connlimit

// mostForStores is the most file descriptors that are kept for the stores.
const mostForStores = 4096

// connectionsOf returns how many of so many files may be connections: half of them, or
// all but mostForStores where that is more.
func connectionsOf(files uint64) int {
	files = min(files, 1<<30) // "unlimited" is a high number
	return int(max(files/2, files-min(files, mostForStores)))
}
