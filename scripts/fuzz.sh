#!/usr/bin/env bash
# Runs every fuzz target for a while, one at a time.
#
#   scripts/fuzz.sh DURATION
set -euo pipefail

duration=${1:?"usage: scripts/fuzz.sh DURATION, such as 10s"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz

# fuzz runs one target of a package's test, in its directory. Now and then the end
# of the duration is taken for a failure (golang/go#75804): it then says "context
# deadline exceeded" and names no input. A failure that a target found always names
# its input.
fuzz() {
	(cd "$2" && "$work/test" -test.run '^$' -test.fuzz "^$3\$" -test.fuzztime "$duration" -test.fuzzcachedir "$cache/$1") 2>&1 |
		tee "$work/output" && return
	grep -q '^ *context deadline exceeded$' "$work/output" &&
		! grep -qE 'Failing input|failure while testing seed|panic:|DATA RACE' "$work/output"
}

# Each package is built once: go test would link it for each of its targets.
targets=0
packages=$(go list -f '{{.ImportPath}} {{.Dir}}' ./...)
while read -r package directory; do
	grep -qs '^func Fuzz' "$directory"/*_test.go || continue
	go test -c -fuzz . -o "$work/test" "$package"
	listed=$(cd "$directory" && "$work/test" -test.list '^Fuzz')
	for target in $listed; do
		echo "$package $target"
		fuzz "$package" "$directory" "$target"
		targets=$(( targets + 1 ))
	done
done <<<"$packages"
echo "$targets fuzz targets passed"
