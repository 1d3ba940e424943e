#!/bin/sh
# A whole life of an item with nothing but curl.
#
#     omnirelay dev                     # in another terminal
#     sh curl.sh [http://127.0.0.1:7400]
set -eu
queue="${1:-http://127.0.0.1:7400}/v1/resourcelease"

# A body is JSON. What is refused also has a JSON body, and a status that curl shows with -w.
ask() { curl --silent --show-error --max-time 20 --write-out ' %{http_code}\n' --data "$2" "$queue/$1"; }

echo "enqueue; the second has the same requestId and gets the first one's sequenceId:"
item='{"payload":{"resourceType":"curl","resourceId":"sales.orders","requestId":"'"curl-$$"'"}}'
ask enqueue "$item"
ask enqueue "$item"

echo "lease, waiting for at most 5 s; 204 would mean that nothing came:"
leased=$(ask lease '{"peerId":"curl","resourceTypes":["curl"],"waitMs":5000}')
echo "$leased"

# The token is what every further call about this lease shows. It is an object inside the answer.
token=$(printf '%s' "$leased" | sed -n 's/.*"ownershipToken":\({[^}]*}\).*/\1/p')

echo "heartbeat; release, which hands the item back untried:"
ask heartbeat "{\"ownershipToken\":$token}"
ask release "{\"ownershipToken\":$token}"

echo "the token is stale now, so it completes nothing any more: 412:"
ask complete "{\"ownershipToken\":$token}"

echo "lease again, under a larger fence, and complete:"
leased=$(ask lease '{"peerId":"curl","resourceTypes":["curl"],"waitMs":5000}')
echo "$leased"
token=$(printf '%s' "$leased" | sed -n 's/.*"ownershipToken":\({[^}]*}\).*/\1/p')
ask complete "{\"ownershipToken\":$token}"
