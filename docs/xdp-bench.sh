#!/bin/bash
# Builds `xdp-bench` of xdp-tools, the yardstick of lane `xdp` in `laneway race forward`: Debian 12's (1.3.1)
# does not load on Linux 6.18, because a tracepoint that it attaches to is gone.
#
# Everything it makes lies under PREFIX; nothing is installed but the build tools that are missing, as
# Debian packages, by name. --no-install names them and stops instead.
set -euo pipefail

# What was raced in docs/measurements, and the libbpf that belongs to it.
TAG=v1.6.3
LIBBPF=09b9e83102eb8ab9e540d36b4559c55f3bcdb95d
PACKAGES=(git make gcc m4 pkg-config clang-19 llvm-19 bpftool libelf-dev zlib1g-dev libpcap-dev)

usage() {
    cat <<'USAGE'
usage: xdp-bench.sh [--no-install] PREFIX

Example:
  sudo docs/xdp-bench.sh /opt/xdp-tools
  sudo env "PATH=/opt/xdp-tools/bin:$PATH" laneway race forward --variant live --lane bridge --lane xdp --lane xdp-bench

XDP_TOOLS and LIBBPF_SOURCE in the environment name other places of the two git repositories
(default https://github.com/xdp-project/xdp-tools and https://github.com/libbpf/libbpf).
USAGE
}

fail() {
    echo "xdp-bench.sh: $1" >&2
    exit 2
}

install=yes
prefix=
while [ $# -gt 0 ]; do
    case $1 in
    --no-install) install=no ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) fail "there is no option $1; see --help" ;;
    *)
        [ -z "$prefix" ] || fail "one PREFIX, not also $1"
        prefix=$1
        ;;
    esac
    shift
done
[ -n "$prefix" ] || { usage >&2; exit 2; }

missing=()
for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$install" = yes ] || fail "missing: apt-get install ${missing[*]}"
    [ "$(id -u)" -eq 0 ] || fail "not root; run: sudo apt-get install ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

source=$prefix/src
mkdir -p "$prefix/bin"
[ -d "$source/.git" ] || git clone -q "${XDP_TOOLS:-https://github.com/xdp-project/xdp-tools}" "$source" ||
    fail "cannot clone xdp-tools; XDP_TOOLS names another place"
git -C "$source" checkout -q "$TAG"
rmdir "$source/lib/libbpf" 2>/dev/null || true
[ -d "$source/lib/libbpf" ] || git clone -q "${LIBBPF_SOURCE:-https://github.com/libbpf/libbpf}" "$source/lib/libbpf" ||
    fail "cannot clone libbpf; LIBBPF_SOURCE names another place"
git -C "$source/lib/libbpf" checkout -q "$LIBBPF"

cd "$source"
FORCE_SUBDIR_LIBBPF=1 CLANG=clang-19 LLC=llc-19 BPFTOOL=$(PATH=$PATH:/usr/sbin command -v bpftool) ./configure >configure.log 2>&1 ||
    fail "configure failed: $(tail -n 1 configure.log)"
make -j"$(nproc)" libxdp >make.log 2>&1 || fail "make libxdp failed; see $source/make.log"
make -C xdp-bench >>make.log 2>&1 || fail "make xdp-bench failed; see $source/make.log"
ln -sf "$source/xdp-bench/xdp-bench" "$prefix/bin/xdp-bench"
echo "xdp-bench.sh: $prefix/bin/xdp-bench"
