#!/bin/sh
# Three instances of Sluice on one Redis. 42,049 jobs of 59 tenants are uploaded through
# the second, at 4,000 jobs a second over all three; the first is killed during the
# upload and started again. At the end the third says what became of the jobs.
#
# Needs redis-server, Go and curl; takes half a minute. The Redis has no TCP port; the
# instances are at 127.0.0.1:8091 to 8093. Everything is gone when it ends.
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
pids=""
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

go build -o "$folder/sluice" ./cmd/sluice
PATH=$folder:$PATH

redis-server --port 0 --unixsocket "$folder/redis.sock" --dir "$folder" --save '' \
  --appendonly yes --appendfsync always --maxmemory-policy noeviction >"$folder/redis.log" &
pids="$pids $!"
while ! redis-cli -s "$folder/redis.sock" ping >"$folder/ping" 2>&1; do sleep 0.1; done

# start N: the instance at port 809N, named by its address. It needs no data directory.
start() {
  sluice serve --http "127.0.0.1:809$1" --kafka off --state "unix://$folder/redis.sock" \
    --bulk-requests-per-second 4000 2>>"$folder/$1.log" &
  pids="$pids $!"
  eval "pid$1=$!"
  while ! curl -sf "http://127.0.0.1:809$1/readyz" >"$folder/ready"; do
    kill -0 "$!" || { cat "$folder/$1.log"; exit 1; }
    sleep 0.1
  done
}
start 1
start 2
start 3
echo "three instances are ready"

sluice bulk submit examples/zipcodes.csv --server http://127.0.0.1:8092 --tenant-column state \
  --type echo --aggregate count >"$folder/submitted"
echo "all jobs are uploaded"
sleep 3
kill -9 "$pid1"
echo "the first instance was killed"
sleep 3
start 1
echo "and is back"

actions() { sluice bulk list --server http://127.0.0.1:8093 --limit 0 --json; }
while actions | grep -qv '"status":"COMPLETED"'; do sleep 0.5; done
actions | grep -o '"succeeded":[0-9]*' | cut -d: -f2 |
  awk '{ jobs += $1 } END { print "the third instance says: " jobs " jobs of " NR " actions succeeded" }'
for n in 1 2 3; do
  printf 'since it was started, the one at port 809%s has run ' "$n"
  curl -s "http://127.0.0.1:809$n/metrics" | grep '^bulk_action_attempts_total{outcome="succeeded"' | cut -d' ' -f2
done
