#!/bin/bash
# Builds Debian's own DPDK once more, with its fast-path trace points compiled in and with a call to a
# tracer at the entry and exit of every function, so that `laneway trace record` has something to record.
# See instrumented-dpdk.md.
#
# Everything it makes lies under PREFIX: sources, build, and the apt lists that sources need. The
# host's apt sources stay as they are. Build tools that are missing are installed as Debian packages,
# by name; --no-install names them and stops instead.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: instrumented-dpdk.sh [--no-install] [--jobs N] PREFIX

Example:
  sudo docs/instrumented-dpdk.sh /opt/traced-dpdk
  sudo laneway trace record --lttng --out out/t -- /opt/traced-dpdk/bin/dpdk-testpmd ...

MIRROR in the environment names a Debian mirror (default http://deb.debian.org/debian).
USAGE
}

fail() {
    echo "instrumented-dpdk: $1" >&2
    exit 2
}

install=yes
jobs=$(nproc)
prefix=
while [ $# -gt 0 ]; do
    case $1 in
    --no-install) install=no ;;
    --jobs)
        [ $# -gt 1 ] || fail "--jobs needs a number"
        jobs=$2
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
        [ -z "$prefix" ] || fail "one PREFIX, not two: $prefix and $1"
        prefix=$1
        ;;
    esac
    shift
done
[ -n "$prefix" ] || {
    usage >&2
    exit 2
}
case $jobs in '' | *[!0-9]* | 0) fail "--jobs $jobs: use a number from 1 on" ;; esac

# shellcheck disable=SC1091
. /etc/os-release
[ "${ID:-}" = debian ] || fail "this is ${ID:-no Debian}; it works on Debian 12 and 13"
case ${VERSION_CODENAME:-} in
bookworm | trixie) ;;
*) fail "Debian ${VERSION_CODENAME:-of unknown name}; it works on Debian 12 (bookworm) and 13 (trixie)" ;;
esac
mirror=${MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || fail "$keyring is missing; apt-get install debian-archive-keyring"

mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
work=$prefix/work
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"

# What meson and the chosen drivers need; libxdp and libbpf are af_xdp's, libpcap is pcap's, libnuma the EAL's.
packages="build-essential dpkg-dev meson ninja-build pkg-config python3-pyelftools
    libnuma-dev libpcap-dev libbpf-dev libxdp-dev libelf-dev zlib1g-dev liblttng-ust-dev lttng-tools"
missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
if [ -n "$missing" ]; then
    [ "$install" = yes ] || fail "missing:$missing; apt-get install$missing"
    [ "$(id -u)" = 0 ] || fail "missing:$missing; run as root, or apt-get install$missing first"
    echo "installing$missing"
    apt-get update -q >"$work/apt-update.log" 2>&1 || fail "apt-get update failed, see $work/apt-update.log"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing \
        >"$work/apt-install.log" 2>&1 || fail "apt-get install failed, see $work/apt-install.log"
fi

# deb-src lines in a list of our own: the host's are not changed, and its apt state is not used.
{
    echo "deb-src [signed-by=$keyring] $mirror $VERSION_CODENAME main"
    echo "deb-src [signed-by=$keyring] $mirror $VERSION_CODENAME-updates main"
} >"$work/apt/sources.list"
source_apt() {
    apt-get -q \
        -o Dir::Etc::SourceList="$work/apt/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$work/apt/lists" \
        -o Dir::Cache="$work/apt/cache" \
        -o APT::Sandbox::User=root \
        "$@"
}
cd "$work"
if ! ls -d "$work"/dpdk-*/ >/dev/null 2>&1; then
    echo "fetching the source package of DPDK"
    source_apt update >"$work/source.log" 2>&1 || fail "no source lists from $mirror, see $work/source.log"
    source_apt source dpdk >>"$work/source.log" 2>&1 || fail "no source package, see $work/source.log"
fi
source=$(find "$work" -maxdepth 1 -type d -name 'dpdk-*' | sort | tail -n 1)
[ -n "$source" ] || fail "apt-get source left no folder dpdk-*, see $work/source.log"
version=$(cat "$source/VERSION")

# Only what a machine without a network card can use, and testpmd. Static, so that one symbol table
# names every address. The instruction set is the oldest that DPDK supports: the trace may be analysed elsewhere.
drivers=bus/vdev,mempool/ring,mempool/stack,net/tap,net/af_packet,net/af_xdp,net/null,net/ring,net/memif,net/pcap
build=$work/build
if [ ! -e "$build/build.ninja" ]; then
    echo "configuring DPDK $version"
    rm -rf "$build"
    meson setup "$build" "$source" \
        --prefix="$prefix" --libdir=lib --buildtype=debugoptimized --default-library=static \
        -Dplatform=generic -Dtests=false -Denable_docs=false \
        -Denable_drivers="$drivers" -Denable_apps=test-pmd \
        -Denable_trace_fp=true -Dc_args=-finstrument-functions \
        >"$work/configure.log" 2>&1 || fail "meson setup failed, see $work/configure.log"
fi
echo "building with $jobs jobs; this takes about five minutes on two cores"
ninja -C "$build" -j "$jobs" app/dpdk-testpmd >"$work/build.log" 2>&1 ||
    fail "the build failed, see the end of $work/build.log"

mkdir -p "$prefix/bin"
install -m 755 "$build/app/dpdk-testpmd" "$prefix/bin/dpdk-testpmd"
# What a trace names by address, for an analysis on a machine without the program.
nm --defined-only "$prefix/bin/dpdk-testpmd" | sort >"$prefix/testpmd.nm"

calls=$(objdump -d "$prefix/bin/dpdk-testpmd" --no-show-raw-insn | grep -c 'call.*__cyg_profile_func_enter' || true)
[ "$calls" -gt 1000 ] || fail "only $calls functions of $prefix/bin/dpdk-testpmd are instrumented"
echo "DPDK $version: $prefix/bin/dpdk-testpmd, $calls instrumented places; symbols in $prefix/testpmd.nm"
echo "$work can be removed"
