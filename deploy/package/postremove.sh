#!/bin/sh
# After the package was removed or upgraded. The data in /var/lib/sluice and its user stay.
set -eu

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
