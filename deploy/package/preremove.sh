#!/bin/sh
# Before the package is removed or upgraded: dpkg says "remove" or "upgrade", rpm how many
# versions remain.
set -eu

if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now sluice.service
fi
