#!/usr/bin/env bash
# Runs every fuzz target for a while, as many at a time as there are processors.
#
#   scripts/fuzz.sh DURATION
set -euo pipefail

export duration=${1:?"usage: scripts/fuzz.sh DURATION, such as 10s"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz
export work cache

# fuzz runs one target of a package's test, in its directory. Now and then the end
# of the duration is taken for a failure (golang/go#75804): it then says "context
# deadline exceeded" and names no input. A failure that a target found always names
# its input.
fuzz() {
	local package=$1 directory=$2 test=$3 target=$4
	local output="$test.$target"
	(cd "$directory" && "$test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$duration" \
		-test.parallel 1 -test.fuzzcachedir "$cache/$package") >"$output" 2>&1 && passed=1 || passed=
	echo "$package $target"
	if [[ ! $passed ]] && grep -q '^ *context deadline exceeded$' "$output" &&
		! grep -qE 'Failing input|failure while testing seed|panic:|DATA RACE' "$output"; then
		echo "ended at its limit: golang/go#75804"
		return
	fi
	cat "$output"
	[[ $passed ]]
}
export -f fuzz

# Each package is built once, without debug information: go test would link it for each of its targets.
targets() {
	local number=0 packages
	packages=$(go list -f '{{.ImportPath}} {{.Dir}}' ./...)
	while read -r package directory; do
		grep -qs '^func Fuzz' "$directory"/*_test.go || continue
		number=$(( number + 1 ))
		go test -c -ldflags=-s -fuzz . -o "$work/$number" "$package"
		(cd "$directory" && "$work/$number" -test.list '^Fuzz') | sed "s|^|$package $directory $work/$number |"
	done <<<"$packages"
}
targets >"$work/targets"
xargs -P "$(nproc)" -L 1 bash -c 'fuzz "$@"' fuzz <"$work/targets"
echo "$(wc -l <"$work/targets") fuzz targets passed"
