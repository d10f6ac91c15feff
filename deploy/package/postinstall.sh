#!/bin/sh
# After dpkg or rpm installed or upgraded the package.
set -eu

systemd-sysusers sluice.conf
systemd-tmpfiles --create sluice.conf
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart sluice.service
fi
