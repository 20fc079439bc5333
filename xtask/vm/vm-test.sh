#!/usr/bin/env bash
# Boots Debian's kernels 6.1 and 6.12 under QEMU, on this machine's own files, and shows that Laneway works
# on them: every eBPF object loads, `laneway lanes` gives the modes that the kernel has, a ping is answered
# and frames are forwarded in the kernel, feature rows equal those of user space on the shipped captures.
#
#   xtask/vm/vm-test.sh --short|--long [CARGO_SCOPE...]     make vm-test, make vm-test MODE=--short
#
# The long form also has network cards that are not here (nics.sh). KERNELS="6.12" and STEPS='^nic-' (a regular
# expression of step names) in the environment leave out the rest; LANEWAY=PROGRAM takes this program, and builds
# nothing where the steps need nothing else.
#
# Needs root, qemu-system-x86, cpio, xz-utils and a Debian whose package lists hold the kernels: packages
# of kernels and of busybox are downloaded and unpacked, not installed. What is missing is one line,
# `skipped: <reason>`, and no failure. What must always hold: the host's files are read-only in the guest;
# guest and files end with this script, except the unpacked packages in target/vm/cache; a guest that
# hangs ends after a stated time, with its last words shown. Without acceleration the guest is about ten
# times slower than the host, so no figure means anything here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=xtask/vm
form=long
if [ $# -gt 0 ]; then
    [ "$1" != --short ] || form=short
    shift
fi
scope=("${@:---workspace}")

read -ra KERNELS <<<"${KERNELS:-6.1 6.12}"
STEPS=${STEPS:-.}
# A guest has so long, boot included.
SECONDS_SHORT=140
SECONDS_LONG=5400
MEMORY_MB=3072
# What the kernel packages have as modules and the steps need, with what those need.
MODULES="virtio virtio_ring virtio_pci virtio_pci_legacy_dev virtio_pci_modern_dev 9p 9pnet 9pnet_virtio
netfs fscache overlay veth tun tap af_packet sch_tbf sch_ingress cls_bpf bridge stp llc 8021q garp mrp dummy"
# And those of cards, of DPDK's way to them.
MODULES_NICS="failover net_failover virtio_net pps_core ptp e1000e vmxnet3 irqbypass iommufd vfio vfio_virqfd
vfio_iommu_type1 vfio-pci-core vfio-pci"
LOG_LINES_MAX=40

target=$(readlink -m "${CARGO_TARGET_DIR:-target}")
cache=$target/vm/cache
own=
guest=
wires=

say() { printf 'vm: %s\n' "$*"; }
skip_all() { say "skipped: $*"; exit 0; }

finish() {
    trap '' HUP INT TERM
    if [ -n "$guest" ]; then kill "$guest" 2>/dev/null && wait "$guest" || true; fi
    if [ -n "$own" ]; then rm -rf "$own"; fi
    if [ -n "$wires" ]; then ip netns del "$wires" 2>/dev/null || true; fi
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# The package of the newest kernel of a series: what the series' own meta-package, or Debian's, depends on.
kernel_package() {
    local meta package
    for meta in "linux-image-$1-amd64" linux-image-amd64; do
        package=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | tail -n 1)
        case $package in "linux-image-$1."*) echo "$package"; return ;; esac
    done
    return 1
}

# Downloads a package and unpacks it into the cache; says what apt said when that fails.
unpack() {
    local package=$1 log
    [ ! -d "$cache/$package" ] || return 0
    rm -rf "$cache/new" && mkdir -p "$cache/new/root"
    log=$(cd "$cache/new" && apt-get download -qq "$package" 2>&1) || { echo "${log##*$'\n'}"; return 1; }
    dpkg-deb -x "$cache/new"/*.deb "$cache/new/root"
    mv "$cache/new/root" "$cache/$package"
    rm -rf "$cache/new"
}

# The initrd of a kernel: busybox, modules, init.sh.
initrd() {
    local kernel=$1 files=$2 name
    mkdir -p "$files/bin" "$files/modules"
    cp "$cache/busybox-static/bin/busybox" "$files/bin/"
    cp $here/init.sh "$files/init"
    chmod +x "$files/init"
    for name in $MODULES $([ $form = short ] || echo "$MODULES_NICS"); do
        find "$kernel"/lib/modules/*/kernel "$kernel"/usr/lib/modules/*/kernel -name "$name.ko*" \
            -exec cp {} "$files/modules/" \; 2>/dev/null || true
    done
    find "$files/modules" -name '*.xz' -exec xz -d {} +
    (cd "$files" && find . | cpio -o -H newc --quiet)
}

# What cargo built: the executable of a package's target (kind and name), the folders of eBPF objects.
artefacts=
executable() {
    # The harness of a program's own tests is an executable of the program's name, too.
    local harness=false
    [ "$2" != test ] || harness=true
    grep '"profile":{[^}]*"test":'$harness'}' <<<"$artefacts" |
        sed -n 's|.*"manifest_path":"[^"]*/'"$1"'/Cargo.toml".*"kind":\["'"$2"'"\].*"name":"'"$3"'".*"executable":"\([^"]*\)".*|\1|p' |
        tail -n 1
}
object_folders() {
    sed -n 's/.*"reason":"build-script-executed".*"out_dir":"\([^"]*\)".*/\1/p' <<<"$artefacts" |
        while read -r folder; do ls "$folder"/*.bpf.o >/dev/null 2>&1 && echo "$folder"; done
}

build() {
    local targets=() name
    for name in $(awk '/^[a-z]/ { print $4 }' $here/tests | sort -u); do targets+=(--test "$name"); done
    say "cargo test ${scope[*]} --no-run ${targets[*]}"
    artefacts=$(cargo test "${scope[@]}" --no-run --message-format=json-render-diagnostics "${targets[@]}" &&
        cargo build "${scope[@]}" --message-format=json-render-diagnostics --example load_objects)
}

# A namespace of the host with the far ends of virtio's cable: a card with several queues needs a tap with as many.
lay_wires() {
    # Those of a run that was killed go first.
    ip netns list | sed -n 's/^laneway-vm-\([0-9]*\).*/\1/p' | while read -r pid; do
        kill -0 "$pid" 2>/dev/null || ip netns del "laneway-vm-$pid"
    done
    wires=laneway-vm-$$
    ip netns add $wires || { wires=; return 1; }
    local name
    ip netns exec $wires sysctl -qw net.ipv6.conf.default.disable_ipv6=1
    ip -n $wires tuntap add name near mode tap multi_queue vnet_hdr &&
        ip -n $wires tuntap add name far mode tap vnet_hdr &&
        ip -n $wires link add name cable type bridge mcast_snooping 0 || return 1
    # A cable and no switch: the capture has frames of both directions, and none may stay away because a frame
    # from its destination was seen on the same side.
    for name in near far; do
        ip -n $wires link set $name master cable up && ip -n $wires link set $name type bridge_slave learning off || return 1
    done
    ip -n $wires link set cable up
}

# The cards under test end in 01 to 03, their far ends in 11 to 13. A card has a queue for each CPU and as many for
# native XDP's sends. Behind an IOMMU, as zero copy and vfio want it.
nic_options() {
    local mac=02:4c:57:01:00
    echo "-machine q35 -device intel-iommu,intremap=on,device-iotlb=on
        -netdev tap,id=near,ifname=near,script=no,downscript=no,queues=4,vhost=off
        -device virtio-net-pci,netdev=near,mac=$mac:01,mq=on,vectors=10,rss=on,hash=on,disable-legacy=on,iommu_platform=on,ats=on
        -netdev tap,id=far,ifname=far,script=no,downscript=no,vhost=off
        -device virtio-net-pci,netdev=far,mac=$mac:11"
    local number model
    for number in 2 3; do
        model=$([ $number = 2 ] && echo e1000e || echo vmxnet3)
        echo "-netdev hubport,id=near$number,hubid=$number -device $model,netdev=near$number,mac=$mac:0$number
            -netdev hubport,id=far$number,hubid=$number -device virtio-net-pci,netdev=far$number,mac=$mac:1$number"
    done
}

# The steps of a guest: seconds at most, name, command.
all_steps() {
    local forms seconds package name test binary model exact
    echo "90 lanes lanes"
    if [ $form = long ]; then
        for model in virtio e1000e vmxnet3; do
            for name in kernel spread dpdk; do echo "300 nic-$name-$model nics $name $model"; done
        done
    fi
    [ -n "$artefacts" ] || return 0
    binary=$(executable crates/bpf example load_objects)
    echo "60 objects ${binary:-false} $(object_folders | tr '\n' ' ')"
    while read -r forms seconds package name test; do
        case $forms in "$form" | both) ;; *) continue ;; esac
        # What was not built fails there.
        binary=$(executable "$package" test "$name")
        # A name that ends in :: is a module's, with all its tests.
        case $test in *::) exact= ;; *) exact=--exact ;; esac
        echo "$seconds ${package##*/}.$test ${binary:-false} $exact --nocapture --test-threads=1 $test"
    done <$here/tests
    if [ $form = long ]; then
        echo "600 race race"
    fi
}
steps() { all_steps | awk -v wanted="$STEPS" '$2 ~ wanted'; }

# One kernel; the number of what failed there is its answer.
run() {
    local kernel=$1 package files seconds=$SECONDS_LONG why name shown begin=$SECONDS
    local options=(-nic none) arguments="" inside=()
    if [ $form = short ]; then
        seconds=$SECONDS_SHORT
    else
        read -rd '' -a options < <(nic_options) || true
        arguments="intel_iommu=on"
        inside=(nsenter "--net=/run/netns/$wires")
    fi
    package=$(kernel_package "$kernel") || {
        say "skipped: $kernel: no package linux-image-$kernel-amd64 (apt-get update; bookworm-security has it)"
        return 0
    }
    for name in busybox-static "$package"; do
        why=$(unpack "$name") || { say "skipped: $kernel: cannot download $name: $why"; return 0; }
    done
    files=$cache/$package
    own=$(mktemp -d "$target/vm/run.XXXXXX")
    initrd "$files" "$own/files" >"$own/initrd" && rm -rf "$own/files"
    cp $here/guest.sh $here/nics.sh "$own/"
    pwd >"$own/root"
    echo "$kernel" >"$own/kernel"
    { [ -z "$laneway" ] && executable cli bin laneway || echo "$laneway"; } >"$own/laneway"
    steps >"$own/steps"
    # All that the guest says is kept, its progress is shown. In the background, as only `wait` lets a signal
    # through at once; ends with the guest.
    mkfifo "$own/said"
    tee "$own/console" <"$own/said" | sed -u 's|\r||g' | grep --line-buffered -a '^vm: ' &
    shown=$!
    # The kernel's check of its timer fails where the host has no time for the guest.
    # Without acceleration also where /dev/kvm is: nested, it may abort (a register that cannot be set).
    "${inside[@]}" timeout --kill-after=5 "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m $MEMORY_MB \
        -nographic -no-reboot "${options[@]}" -kernel "$files"/boot/vmlinuz-* -initrd "$own/initrd" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check $arguments" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs "local,path=$own,mount_tag=own,security_model=none" >"$own/said" 2>&1 </dev/null &
    guest=$!
    wait $guest || true
    wait $shown || true
    guest=
    mkdir -p "$target/vm/logs-$kernel"
    rm -f "$target/vm/logs-$kernel"/*
    mv "$own"/*.log "$own/console" "$target/vm/logs-$kernel/" 2>/dev/null || true
    grep -ahoE 'skipped: .*' "$target/vm/logs-$kernel"/*.log | sed 's/ ([a-z_:]*)$//' | sort -u | sed "s/^/vm: $kernel: /" || true
    if [ ! -s "$own/end" ]; then
        say "$kernel: FAILED: the guest ended without an answer within $seconds s; its last words:"
        tail -n $LOG_LINES_MAX "$target/vm/logs-$kernel/console" | tr -d '\r' | sed 's/^/   | /'
        failed=$((failed + 1))
    else
        failed=$((failed + $(cat "$own/end")))
        say "$kernel: $(cat "$own/end") steps failed, $((SECONDS - begin)) s; logs are in $target/vm/logs-$kernel"
    fi
    for name in $(sed -n "s/^vm: $kernel: \([^ ]*\): FAILED with .*/\1/p" "$target/vm/logs-$kernel/console" | tr -d '\r'); do
        say "$kernel: $name:"
        tail -n $LOG_LINES_MAX "$target/vm/logs-$kernel/$name.log" | sed 's/^/   | /'
    done
    rm -rf "$own"
    own=
}

[ "$(id -u)" = 0 ] || skip_all "the guest reads the machine's files as root; run as root"
[ "$(uname -m)" = x86_64 ] || skip_all "the kernels are those of amd64, this machine is $(uname -m)"
for tool in qemu-system-x86_64 cpio xz apt-get dpkg-deb; do
    command -v $tool >/dev/null || skip_all "no $tool here (cargo xtask install --vm)"
done
mkdir -p "$cache"
laneway=${LANEWAY:-}
# With a program in hand, steps of tests are left out.
if [ -z "$laneway" ]; then build; else say "LANEWAY=$laneway: skipped: the steps that need built tests"; fi
failed=0
[ $form = short ] || lay_wires || { say "skipped: network cards: no tap device or bridge here"; form=short; }
for kernel in "${KERNELS[@]}"; do run "$kernel"; done
[ $failed -eq 0 ]
