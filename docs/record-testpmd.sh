#!/bin/bash
# Records a large trace of an instrumented testpmd on two TAP ports: about 12 million events, 550 MB.
# See instrumented-dpdk.md for how to build one.
#
# The ports, the traffic and the recording are in a network namespace of its own, which goes with this script,
# however it ends. Nothing else on the machine is touched; DIR is all that is left.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: record-testpmd.sh [--events N] [--pps N] [--kernel] [--block] TESTPMD DIR

  --events N  stop after about N events (default 12000000)
  --pps N     frames per second into the first port (default 20000)
  --kernel    join what the kernel does to testpmd's threads
  --block     testpmd waits when LTTng's buffers are full: nothing is lost, and times are distorted

Example:
  sudo docs/record-testpmd.sh /opt/traced-dpdk/bin/dpdk-testpmd out/testpmd
  laneway trace analyze out/testpmd --symbols /opt/traced-dpdk/testpmd.nm

LANEWAY in the environment names the program (default: laneway in PATH, else target/release/laneway), CAPTURE what
is replayed (default scenarios/captures/mixed.pcap.zst).
USAGE
}

fail() {
    echo "record-testpmd: $1" >&2
    exit 2
}

# What one event of cyg_profile with its three contexts takes, padding included: 677,422,896 bytes for 14,412,573.
event_bytes=47
# Buffers of 256 MiB per CPU: the consumer may be away for more than a second.
sub_buffer_mib=8
sub_buffers=32
# Seconds for testpmd to start, for which every function of its start is recorded, and to end.
patience=120

events=12000000
pps=20000
options=()
words=()
while [ $# -gt 0 ]; do
    case $1 in
    --events | --pps)
        [ $# -gt 1 ] || fail "$1 needs a number"
        case $2 in '' | *[!0-9]* | 0) fail "$1 $2: use a number from 1 on" ;; esac
        if [ "$1" = --events ]; then events=$2; else pps=$2; fi
        shift
        ;;
    --kernel | --block) options+=("$1") ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) fail "unknown option $1; see --help" ;;
    *) words+=("$1") ;;
    esac
    shift
done
[ ${#words[@]} -eq 2 ] || {
    usage >&2
    exit 2
}
testpmd=${words[0]}
out=${words[1]}

root=$(cd "$(dirname "$0")/.." && pwd)
laneway=${LANEWAY:-$(command -v laneway || echo "$root/target/release/laneway")}
capture=${CAPTURE:-$root/scenarios/captures/mixed.pcap.zst}
[ "$(id -u)" = 0 ] || fail "making a network namespace needs root"
[ -x "$testpmd" ] || fail "$testpmd is no program; docs/instrumented-dpdk.sh builds one"
[ -x "$laneway" ] || fail "$laneway is not there; cargo build --release, or set LANEWAY"
[ -e "$capture" ] || fail "$capture is not there; set CAPTURE"
command -v ip >/dev/null || fail "ip is not installed; apt-get install iproute2"

space=laneway-record-$$
scratch=$(mktemp -d)
recorder=
generator=
clean_up() {
    # By number, and only what was started here. The recorder takes LTTng down when it is asked to end.
    [ -z "$generator" ] || kill -INT "$generator" 2>/dev/null || true
    [ -z "$recorder" ] || kill -TERM "$recorder" 2>/dev/null || true
    wait 2>/dev/null || true
    ip netns del "$space" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

ip netns add "$space"
# Without its chatter every frame is one of the capture.
ip netns exec "$space" sysctl -qw net.ipv6.conf.default.disable_ipv6=1
mkfifo "$scratch/keys"
# Opened for both ways, so that it has an end and neither side waits for the other.
exec 3<>"$scratch/keys"

ip netns exec "$space" "$laneway" trace record --lttng --out "$out" \
    --sub-buffer "$sub_buffer_mib" --sub-buffers "$sub_buffers" "${options[@]}" -- \
    "$testpmd" -l 0,1 --no-pci --no-huge -m 512 --no-telemetry --file-prefix "$space" \
    --vdev=net_tap0,iface=lwtap0 --vdev=net_tap1,iface=lwtap1 -- \
    --forward-mode=io --auto-start --total-num-mbufs=8192 \
    <"$scratch/keys" >"$scratch/testpmd.log" 2>&1 &
recorder=$!

alive() {
    kill -0 "$recorder" 2>/dev/null || {
        tail -n 20 "$scratch/testpmd.log" >&2
        fail "the recording ended early; the end of its output is above"
    }
}

# Both ports are up: testpmd has started them. What it prints waits in its buffer until it ends.
started() {
    [ "$(ip -n "$space" -o link show up 2>/dev/null | grep -c lwtap)" = 2 ]
}

echo "starting testpmd"
for ((i = 0; i < patience * 10; i++)); do
    alive
    if started; then break; fi
    sleep 0.1
done
started || fail "testpmd has not started its ports after $patience s"

ip netns exec "$space" "$laneway" gen pcap "$capture" --on lwtap0 --pps "$pps" --loop 0 \
    >"$scratch/gen.log" 2>&1 &
generator=$!

echo "recording at $pps frames/s until about $events events"
while [ "$(du -sb "$out/lttng" | cut -f 1)" -lt $((events * event_bytes)) ]; do
    alive
    kill -0 "$generator" 2>/dev/null || {
        cat "$scratch/gen.log" >&2
        fail "the generator ended early; its output is above"
    }
    sleep 0.2
done

# Enter is how testpmd is asked to end, its ports closed in order.
echo >&3
kill -INT "$generator"
for ((i = 0; i < patience * 10; i++)); do
    kill -0 "$recorder" 2>/dev/null || break
    sleep 0.1
done
wait "$generator" || true
generator=
wait "$recorder" || fail "the recording failed: $(tail -n 3 "$scratch/testpmd.log")"
recorder=
grep -E '^(kernel|lttng): ' "$scratch/testpmd.log" || true
echo "recorded $(du -sm "$out" | cut -f 1) MB in $out"
