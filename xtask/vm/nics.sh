#!/bin/bash
# The steps of a guest that need network cards. QEMU emulates a card of each model and joins it to a card of the
# far end, which is always virtio; vm-test.sh says which address has which.
#
#   nics.sh LANEWAY KERNEL kernel MODEL   the kernel's driver under each lane: pings are answered, frames are counted
#   nics.sh LANEWAY KERNEL spread MODEL   two workers, a queue each: every frame is seen once, each worker sees some
#   nics.sh LANEWAY KERNEL dpdk MODEL     the card bound to vfio-pci behind an emulated IOMMU, driven by DPDK
#
# What must always hold: the card goes back to its kernel driver, and both namespaces end with the step. Steps of
# a model begin with the cards in the guest's first namespace. What a card or kernel lacks is `skipped: <reason>`.
set -u

PINGS=5
FRAMES=1000
OURS=10.77.1.9
# Where the capture's frames come from; what the namespaces do not need is off, so that no frame is the kernel's.
CAPTURE=scenarios/captures/mixed.pcap.zst

# What is not to be had, by kernel (`any`), model and lane, and what the refusal must say. vmxnet3 has native XDP
# since Linux 6.6, virtio-net zero copy since a kernel behind 6.12; the cards of QEMU 7.2 have what is listed here of checksums and RSS.
missing() {
    awk -v k="$kernel" -v m="$model" -v l="$1" \
        '($1 == k || $1 == "any") && $2 == m && $3 == l { sub(/^[^ ]+ [^ ]+ [^ ]+ /, ""); print; exit }' <<'TABLE'
any e1000e afxdp native XDP
any e1000e xdp native-xdp
any e1000e afxdp:zero-copy zero-copy
any e1000e dpdk:promisc*2 no RSS
any virtio afxdp:zero-copy zero-copy
any virtio dpdk:csum checksum-offload
6.1 vmxnet3 afxdp native XDP
6.1 vmxnet3 xdp native-xdp
any vmxnet3 afxdp:zero-copy zero-copy
any vmxnet3 dpdk:csum checksum-offload
TABLE
}

# QEMU 7.2's vmxnet3 takes the setting of RSS, and receives by one queue.
spreads() { [ "$model" != vmxnet3 ]; }

# The interface or PCI address of the card with this last byte of its MAC address.
card() {
    local folder
    for folder in /sys/class/net/*; do
        if [ "$(cat "$folder/address" 2>/dev/null)" = "02:4c:57:01:00:$1" ]; then
            basename "$folder"
            return
        fi
    done
    return 1
}
address_of() {
    local folder
    folder=$(readlink -f "/sys/class/net/$1/device")
    # A virtio card has its own device one level below the PCI device.
    case ${folder##*/} in virtio*) folder=${folder%/*} ;; esac
    echo "${folder##*/}"
}
number_of() {
    case $1 in virtio) echo 1 ;; e1000e) echo 2 ;; vmxnet3) echo 3 ;; *) return 1 ;; esac
}

# The driver that has the card under test; another one for it, `vfio-pci` or its kernel driver when empty.
driver() { basename "$(readlink "/sys/bus/pci/devices/$address/driver")"; }
bind() {
    echo "$address" >"/sys/bus/pci/devices/$address/driver/unbind"
    echo "$1" >"/sys/bus/pci/devices/$address/driver_override"
    echo "$address" >/sys/bus/pci/drivers_probe
    [ -z "$1" ] || [ "$(driver)" = "$1" ]
}

# The card under test into namespace `near`, its far end into `far`, both up and quiet.
near=
far=
address=
mac=
cards_in_place() {
    local number space
    number=$(number_of "$model") || { echo "no model $model"; return 1; }
    near=$(card "0$number") || { echo "no card of model $model: $(ls /sys/class/net)"; return 1; }
    far=$(card "1$number") || { echo "no far end of model $model"; return 1; }
    address=$(address_of "$near")
    mac=$(cat "/sys/class/net/$near/address")
    for space in near far; do
        ip netns add $space
        ip netns exec $space sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv6.conf.all.disable_ipv6=1
    done
    ip link set "$near" netns near && ip link set "$far" netns far || return 1
    ip -n near addr add 10.77.1.1/24 dev "$near"
    ip -n far addr add 10.77.1.2/24 dev "$far"
    ip -n near link set "$near" up promisc on && ip -n far link set "$far" up || return 1
    # The first ping needs both links up.
    local round
    for round in $(seq 50); do
        if ip netns exec far ping -c 1 -W 1 10.77.1.1 >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    echo "$near and $far do not reach each other after $round rounds"
    return 1
}
cards_away() {
    [ -z "$app" ] || kill -KILL "$app" 2>/dev/null
    if [ "$(driver)" = vfio-pci ]; then bind ""; fi
    ip netns del near 2>/dev/null
    ip netns del far 2>/dev/null
    # A namespace's own end comes later; its cards are here again then.
    for _ in $(seq 100); do
        if card "0$(number_of "$model")" >/dev/null && card "1$(number_of "$model")" >/dev/null; then return; fi
        sleep 0.1
    done
}

# Has a card with RSS receive by the first so many queues. For once a lane runs: with a native program virtio-net has
# more queues than before, and forgets how it spread frames (seen on 6.12).
by_queues() { "${in_near[@]}" ethtool -X "$near" equal "$1" >/dev/null 2>&1; }

# Starts a program on a lane and waits until it says that it has begun. 2 when the lane is missing, as the table says.
app=
start() {
    local key=$1 awaited=$2 lacks
    shift 2
    lacks=$(missing "$key")
    "$@" >/tmp/nic.out 2>/tmp/nic.err </dev/null &
    app=$!
    for _ in $(seq 300); do
        if grep -q "$awaited" /tmp/nic.err; then
            [ -n "$lacks" ] || return 0
            echo "unfit: $key works, the table of nics.sh says it lacks $lacks"
            stop
            return 1
        fi
        kill -0 $app 2>/dev/null || break
        sleep 0.1
    done
    wait $app 2>/dev/null
    app=
    if [ -n "$lacks" ] && grep -q "^laneway: .*$lacks" /tmp/nic.err; then
        echo "skipped: $model has no $key: $(grep -m 1 '^laneway: ' /tmp/nic.err | cut -c 10-220)"
        return 2
    fi
    echo "did not begin: $*"
    cat /tmp/nic.err
    return 1
}
stop() {
    # Not SIGINT, which a shell has its background commands ignore.
    kill -TERM $app 2>/dev/null
    wait $app
    local code=$?
    app=
    [ $code -eq 0 ] || echo "ended with $code"
    return $code
}
# Not a function: what is started in the background would be a shell that runs it.
in_near=(ip netns exec near)
# The number behind a name in what the program says at its end.
figure() { awk -v n="$1" '$1 == n { gsub(",", ""); print $NF; exit }' /tmp/nic.err; }

# Whether the kernels at both ends ask for neighbours: no frame is theirs while they do not.
quiet() {
    ip -n far link set "$far" arp "$1"
    ip -n near link set "$near" arp "$1" 2>/dev/null
}

# A lane as the table of what is missing names it: without the card's address.
key_of() { sed "s/pci=[^,]*,\\?//; s/:$//" <<<"$1"; }

pings() {
    local lane=$1 answered
    shift
    echo "== echo on $lane"
    start "$(key_of "$lane")" "answering pings" "$@" "$laneway" run echo --lane "$lane" --address $OURS --ttl 99 ${words:-}
    case $? in 1) return 1 ;; 2) return 0 ;; esac
    by_queues 1
    ip netns exec far ip neighbour flush all
    ip netns exec far ping -c $PINGS -i 0.2 -W 5 $OURS >/tmp/nic.ping 2>&1
    stop || { cat /tmp/nic.err; return 1; }
    answered=$(figure answered_echo_v4)
    if ! grep -q " $PINGS received" /tmp/nic.ping || [ "${answered:-0}" != $PINGS ]; then
        echo "$lane: $(grep received /tmp/nic.ping); answered ${answered:-none} of $PINGS"
        cat /tmp/nic.err
        return 1
    fi
    grep -o 'asked for.*' /tmp/nic.err | cut -c 1-300
    echo "$lane: $PINGS pings answered"
}

# Every frame that is sent is seen once. With two workers each sees some.
counts() {
    local lane=$1 workers=$2 seen sum lost idle key
    shift 2
    echo "== features on $lane, $workers workers"
    key=$(key_of "$lane")
    [ "$workers" = 1 ] || key+="*$workers"
    start "$key" "asked for" "$@" "$laneway" run features --lane "$lane" --workers "$workers" -o none ${words:-}
    case $? in 1) return 1 ;; 2) return 0 ;; esac
    # All workers have begun when each has said what it obtained.
    for _ in $(seq 100); do
        [ "$(grep -c 'asked for' /tmp/nic.err)" -ge "$workers" ] && break
        sleep 0.1
    done
    by_queues "$workers"
    quiet off
    ip netns exec far "$laneway" gen pcap $CAPTURE --on "$far" --pps 500 --count $FRAMES >/tmp/nic.gen 2>&1 ||
        cat /tmp/nic.gen
    sleep 1
    quiet on
    stop || { cat /tmp/nic.err; return 1; }
    seen=$(awk '/^frames seen/ { gsub(",", ""); print $NF }' /tmp/nic.err)
    read -r sum idle lost < <(awk '/^worker / { on = 1; next }
        on && NF == 5 { gsub(",", ""); sum += $4; lost += $5; idle += $4 == 0 } END { print sum + 0, idle + 0, lost + 0 }' /tmp/nic.err)
    echo "$lane: sent $FRAMES, seen ${seen:-none}"
    if [ "${seen:-0}" -ne $FRAMES ]; then cat /tmp/nic.err; return 1; fi
    if [ "$workers" -gt 1 ]; then
        sed -n '/^worker /,$p' /tmp/nic.err
        if [ "$sum" -ne $FRAMES ] || [ "$idle" -ne 0 ] || [ "$lost" -ne 0 ]; then cat /tmp/nic.err; return 1; fi
    fi
}

# TCP through the stack of the lane, every byte checked by the client.
echoes() {
    local lane=$1
    echo "== echo over TCP on $lane"
    start "$(key_of "$lane")" "asked for" "$laneway" run echo --tcp --listen $OURS:7 --lane "$lane" ${words:-} || return 1
    sleep 1
    ip netns exec far "$laneway" gen tcp --to $OURS:7 --connections 4 --duration 3 >/tmp/nic.tcp 2>&1
    local code=$?
    tail -n 12 /tmp/nic.tcp
    stop && [ $code -eq 0 ] && return
    echo "$lane: the client ended with $code"
    cat /tmp/nic.err
    return 1
}

in_kernel() {
    local lane unfit=0
    words="--on $near"
    for lane in packet packet:ring uring afxdp afxdp:generic xdp:generic xdp afxdp:zero-copy; do
        pings "$lane" "${in_near[@]}" || unfit=1
    done
    counts packet:ring 1 "${in_near[@]}" || unfit=1
    words+=" --drop"
    counts afxdp:allow=native-xdp 1 "${in_near[@]}" || unfit=1
    return $unfit
}

spread() {
    local unfit=0 queues
    queues=$("${in_near[@]}" ls "/sys/class/net/$near/queues" | grep -c rx-)
    echo "$near of $model has $queues receive queues"
    words="--on $near"
    counts packet 2 "${in_near[@]}" || unfit=1
    if [ "$queues" -lt 2 ]; then
        echo "skipped: $model: one receive queue here, and each worker of afxdp has its own"
    elif ! spreads; then
        echo "skipped: $model: QEMU receives by one queue"
    else
        words+=" --drop"
        counts afxdp 2 "${in_near[@]}" || unfit=1
    fi
    return $unfit
}

dpdk() {
    local unfit=0 lane
    ip -n near link set "$near" down promisc off
    bind vfio-pci || { echo "cannot bind $address to vfio-pci"; return 1; }
    echo "$model at $address: IOMMU group $(basename "$(readlink "/sys/bus/pci/devices/$address/iommu_group")")"
    words="--mac $mac"
    for lane in "dpdk:pci=$address" "dpdk:pci=$address,csum" "dpdk:pci=$address,hugepages=64" "dpdk:pci=$address,intr"; do
        pings "$lane" env || unfit=1
    done
    echoes "dpdk:pci=$address" || unfit=1
    [ -n "$(missing dpdk:csum)" ] || echoes "dpdk:pci=$address,csum" || unfit=1
    words=
    counts "dpdk:pci=$address,promisc" 1 env || unfit=1
    if spreads; then
        counts "dpdk:pci=$address,promisc" 2 env || unfit=1
    else
        echo "skipped: $model: QEMU receives by one queue"
    fi
    return $unfit
}

laneway=$1
kernel=$2
what=$3
model=$4
case $what in kernel) what=in_kernel ;; spread | dpdk) ;; *) echo "no step $what"; exit 1 ;; esac
trap cards_away EXIT
trap 'exit 1' HUP INT TERM
cards_in_place && $what
