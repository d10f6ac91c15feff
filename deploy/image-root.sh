#!/bin/sh
# Writes the files of the image: the program, for GOOS and GOARCH, authorities of certificates, and
# the folder of the data.
#
#   [VERSION=v1.2.3] deploy/image-root.sh DIR
set -eu
root=$1
cd "$(dirname "$0")/.."

mkdir -p "$root/usr/bin" "$root/usr/share/doc/sluice" "$root/etc/ssl/certs" "$root/data"
CGO_ENABLED=0 go build -trimpath \
	-ldflags "-s -w -X github.com/sluice-project/sluice/internal/cli.release=${VERSION-}" \
	-o "$root/usr/bin/sluice" ./cmd/sluice
cp LICENSE THIRD_PARTY_NOTICES "$root/usr/share/doc/sluice/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
