#!/usr/bin/env bash
# Makes sure that commands the tests need are there.
#
#   scripts/need.sh [--report] PACKAGE[=COMMAND]...
#
# COMMAND is what to look for, by default the package's name; an absolute path may be
# any file. Root installs missing packages with apt-get; other users are told the
# command to run. With --report nothing is installed: the script prints one line that
# says which packages are missing and how to install them.
set -euo pipefail

report=
if [[ ${1-} == --report ]]; then
	report=1
	shift
fi

missing=()
for need in "$@"; do
	package=${need%%=*}
	command=${need#*=}
	if ! command -v "$command" >/dev/null && [[ $command != /* || ! -e $command ]]; then
		missing+=("$package")
	fi
done

sudo=
(( EUID == 0 )) || sudo="sudo "
install="${sudo}apt-get install --yes ${missing[*]-}"
command -v apt-get >/dev/null || install="this system's package manager: ${missing[*]-}"

if [[ $report ]]; then
	if (( ${#missing[@]} == 0 )); then
		echo "passed; make test-all runs the rest"
	else
		echo "passed; not run: the tests with ${missing[*]}; install with: $install; make test-all runs the rest"
	fi
	exit 0
fi
if (( ${#missing[@]} == 0 )); then
	exit 0
fi
if (( EUID != 0 )) || ! command -v apt-get >/dev/null; then
	echo "need.sh: missing: ${missing[*]}; install with: $install" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
$install
