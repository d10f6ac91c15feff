#!/usr/bin/env bash
# Makes sure that commands the tests need are there.
#
#   scripts/need.sh PACKAGE[=COMMAND]...
#
# COMMAND is what to look for, by default the package's name; an absolute path may
# be any file. What is missing is installed with apt-get by root; anybody else is told the command to run.
set -euo pipefail

missing=()
for need in "$@"; do
	package=${need%%=*}
	command=${need#*=}
	if ! command -v "$command" >/dev/null && [[ $command != /* || ! -e $command ]]; then
		missing+=("$package")
	fi
done
if (( ${#missing[@]} == 0 )); then
	exit 0
fi

install="apt-get install --yes ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "need.sh: install these with this system's package manager: ${missing[*]}" >&2
	exit 1
fi
if (( EUID != 0 )); then
	echo "need.sh: missing: ${missing[*]}; install with: sudo $install" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
$install
