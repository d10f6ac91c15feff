#!/usr/bin/env bash
# Runs every fuzz target for a while; go test takes only one at a time.
#
#   scripts/fuzz.sh DURATION
set -euo pipefail

duration=${1:?"usage: scripts/fuzz.sh DURATION, such as 10s"}

targets=0
for package in $(go list ./...); do
	listed=$(go test -list '^Fuzz' "$package") # ends the script if it does not build
	for target in $(grep '^Fuzz' <<<"$listed" || true); do
		echo "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package"
		targets=$(( targets + 1 ))
	done
done
echo "$targets fuzz targets passed"
