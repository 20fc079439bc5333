#!/bin/bash
# How fast TCP sends over a cable that loses frames: our stack beside the kernel's, in one run, in turn.
#
#   docs/measurements/stack-loss.sh LANEWAY [ROUNDS] [LANE...]
#
# `laneway run kv` has a value of 64 MiB, and `redis-cli GET` fetches it. Each lane has a veth pair of its own, without
# offloads; frames are lost where they reach the client, by lot (nftables, netdev ingress), the client's own are not. Server
# on CPU 0, client on CPU 1. Prints MB/s: median (least to most). Needs root, ip, nft, ethtool and redis-cli.
set -eu
laneway=$(realpath "${1:?usage: stack-loss.sh LANEWAY [ROUNDS] [LANE...]}")
rounds=${2:-5}
shift; shift || true
lanes=("${@:-socket}"); [ $# -gt 0 ] || lanes=(socket packet afxdp)
losses=(0 10 100) # of 10,000 frames
mib=64
near=lw-loss-near-$$ far=lw-loss-far-$$ dir=$(mktemp -d)
servers=()
cleanup() {
    for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    ip netns del "$near" 2>/dev/null || true
    ip netns del "$far" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
ip netns add "$near"; ip netns add "$far"
ip netns exec "$far" nft add table netdev loss
head -c $((mib << 20)) /dev/urandom > "$dir/value"
at() { # the number of a lane, from 1
    local n=0; for lane in "${lanes[@]}"; do n=$((n + 1)); [ "$lane" != "$1" ] || echo "$n"; done
}
ask() { ip netns exec "$far" taskset -c 1 timeout 120 redis-cli -h "10.9.$(at "$1").$([ "$1" = socket ] && echo 1 || echo 3)" -p 7000 "${@:2}"; }
for lane in "${lanes[@]}"; do
    i=$(at "$lane")
    ip link add "n$i" netns "$near" type veth peer name "f$i" netns "$far"
    ip -n "$near" addr add "10.9.$i.1/24" dev "n$i"; ip -n "$far" addr add "10.9.$i.2/24" dev "f$i"
    for end in "$near n$i" "$far f$i"; do
        set -- $end
        ip netns exec "$1" ethtool -K "$2" tso off gso off gro off tx off rx off >/dev/null
        ip -n "$1" link set "$2" up
    done
    ip netns exec "$far" nft add chain netdev loss "in$i" "{ type filter hook ingress device f$i priority 0; }"
    on=(--on "n$i" --listen "10.9.$i.3:7000")
    [ "$lane" != socket ] || on=(--listen "10.9.$i.1:7000")
    ip netns exec "$near" taskset -c 0 "$laneway" run kv --lane "$lane" "${on[@]}" --protected-mode no \
        > "$dir/$i.log" 2>&1 &
    servers+=($!)
done
sleep 1
for lane in "${lanes[@]}"; do
    ask "$lane" -x SET value < "$dir/value" | grep -qx OK || { echo "$lane does not serve:"; cat "$dir/$(at "$lane").log"; exit 1; }
done
for round in $(seq "$rounds"); do
    for loss in "${losses[@]}"; do
        for lane in "${lanes[@]}"; do
            i=$(at "$lane")
            ip netns exec "$far" nft flush chain netdev loss "in$i"
            [ "$loss" = 0 ] || ip netns exec "$far" nft add rule netdev loss "in$i" numgen random mod 10000 "<" "$loss" drop
            began=$(date +%s%N)
            bytes=$(ask "$lane" GET value | wc -c)
            ended=$(date +%s%N)
            [ "$bytes" -eq $(((mib << 20) + 1)) ] || { echo "$lane at $loss of 10,000 lost: $bytes bytes came"; exit 1; }
            echo "$lane $loss $(((mib << 20) * 1000 / (ended - began)))" >> "$dir/rates"
        done
    done
done
printf '%-14s %-10s %s\n' lane lost 'MB/s, median (least to most)'
for lane in "${lanes[@]}"; do
    for loss in "${losses[@]}"; do
        grep "^$lane $loss " "$dir/rates" | sort -n -k3 | awk -v lane="$lane" -v loss="$loss" \
            '{ v[NR] = $3 } END { printf "%-14s %-10s %d (%d to %d)\n", lane, loss / 100 " %", v[int((NR + 1) / 2)], v[1], v[NR] }'
    done
done
