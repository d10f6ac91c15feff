#!/bin/sh
# A cluster of three nodes on one machine, which speak TLS with each other. 42,049 records
# are written to a topic that all three keep; the node that leads its first partition is
# killed while they are written. All records are there, each once, and the node comes back.
#
# Needs Go, openssl and curl; takes half a minute. Kafka clients find the nodes at
# 127.0.0.1:9191 to 9193, HTTP is at 8191 to 8193. Everything is gone when it ends.
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
pids=""
trap 'kill $pids 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM

go build -o "$folder/sluice" ./cmd/sluice
PATH=$folder:$PATH

# An authority, and a certificate that it signs: for servers and for clients, as each node
# is both. In production each node has a certificate of its own.
(
  cd "$folder"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj "/CN=example authority" -keyout authority.key -out authority.pem
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -subj "/CN=example node" -keyout node.key -out node.request
  echo "subjectAltName=IP:127.0.0.1
extendedKeyUsage=serverAuth,clientAuth" >node.extensions
  openssl x509 -req -in node.request -CA authority.pem -CAkey authority.key -CAcreateserial \
    -days 2 -extfile node.extensions -out node.pem
  openssl rand -hex 32 >secret
) >"$folder/openssl.log" 2>&1 || { cat "$folder/openssl.log"; exit 1; }

# start N: node N, with a data directory of its own.
start() {
  sluice serve --cluster example --node "$1" --rack "rack-$1" --data "$folder/data$1" \
    --http "127.0.0.1:819$1" --kafka "127.0.0.1:919$1" --state off \
    --cluster-listen "127.0.0.1:629$1" --peers 127.0.0.1:6291,127.0.0.1:6292,127.0.0.1:6293 \
    --cluster-secret-file "$folder/secret" --cluster-ca-file "$folder/authority.pem" \
    --cluster-cert-file "$folder/node.pem" --cluster-key-file "$folder/node.key" 2>>"$folder/$1.log" &
  pids="$pids $!"
  eval "pid$1=$!"
}

# ready N: waits until node N serves.
ready() {
  while ! curl -sf "http://127.0.0.1:819$1/readyz" >"$folder/ready"; do
    eval "kill -0 \$pid$1" 2>"$folder/gone" || { cat "$folder/$1.log"; exit 1; }
    sleep 0.1
  done
}
# A majority has to be there before any is ready.
for n in 1 2 3; do start "$n"; done
for n in 1 2 3; do ready "$n"; done
echo "three nodes are ready"
export SLUICE_BROKERS=127.0.0.1:9191,127.0.0.1:9192,127.0.0.1:9193 SLUICE_SERVER=http://127.0.0.1:8191

sluice topic create zipcodes --partitions 3 --replicas 3
leader=$(sluice topic describe zipcodes --json | grep -o '"leader":[0-9]*' | head -1 | cut -d: -f2)
# The first half, then the other while a leader is killed.
tail -n +2 examples/zipcodes.csv >"$folder/records"
{
  head -n 20000 "$folder/records"
  eval "kill -9 \$pid$leader"
  echo "node $leader, which led partition 0, was killed" >&2
  tail -n +20001 "$folder/records"
} | sluice topic produce zipcodes
for n in 1 2 3; do [ "$n" = "$leader" ] || SLUICE_SERVER=http://127.0.0.1:819$n; done
sluice cluster show

start "$leader"
ready "$leader"
echo "node $leader is back"
sluice topic consume zipcodes --until-end --format '%v\n' >"$folder/read"
sort "$folder/records" >"$folder/want"
sort "$folder/read" | cmp - "$folder/want"
echo "all $(wc -l <"$folder/read") records are there, each once"
sluice topic describe zipcodes
