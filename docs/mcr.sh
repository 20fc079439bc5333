#!/bin/bash
# Builds `mcrd` of mcr, the multicast relay of the founding report, and the command by which `laneway race relay` starts it.
#
# Everything it makes lies under PREFIX. Cargo fetches the crates that mcr's lock file names. Nothing else is installed:
# what is missing is named.
set -euo pipefail

# What docs/measurements/relay.md raced.
COMMIT=fced3ed0846ef030f1e3398f5f33fd97320ace30

usage() {
    cat <<'USAGE'
usage: mcr.sh PREFIX

Example:
  docs/mcr.sh /opt/mcr
  sudo env "PATH=/opt/mcr/bin:$PATH" laneway race relay --variant capacity-8

MCR in the environment names another place of the git repository (default https://github.com/acooks/mcr).
USAGE
}

fail() {
    echo "mcr.sh: $1" >&2
    exit 2
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
-*) fail "there is no option $1; see --help" ;;
esac
[ $# -eq 1 ] || { usage >&2; exit 2; }
for tool in git cargo; do
    command -v "$tool" >/dev/null || fail "$tool is missing; install it and try again"
done
mkdir -p "$1/bin"
prefix=$(cd "$1" && pwd)
source=$prefix/src
[ -d "$source/.git" ] || git clone -q "${MCR:-https://github.com/acooks/mcr}" "$source" ||
    fail "cannot clone mcr; MCR names another place"
git -C "$source" checkout -q "$COMMIT"

# Its own pin is an older compiler; with this one no second is downloaded.
RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-stable} cargo build --release --locked --quiet \
    --manifest-path "$source/Cargo.toml" --bin mcrd --bin mcrctl || fail "cargo build failed"
ln -sf "$source/target/release/mcrd" "$source/target/release/mcrctl" "$prefix/bin/"

# One worker on one CPU, and a rule for each group. Two arms of one race have a folder, a socket each.
cat >"$prefix/bin/mcr-arm" <<'ARM'
#!/bin/bash
# usage: mcr-arm INTERFACE GROUP[,GROUP...] PORT INTERFACE:PORT[,INTERFACE:PORT...] CPU
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"; kill "${relay-}" 2>/dev/null; wait' EXIT
trap 'exit 0' TERM INT
{
    echo "{ pinning: { \"$1\": [$5] }, rules: ["
    for group in ${2//,/ }; do
        echo "{ input: { interface: \"$1\", group: \"$group\", port: $3 }, outputs: ["
        for output in ${4//,/ }; do
            echo "{ interface: \"${output%:*}\", group: \"$group\", port: ${output##*:} },"
        done
        echo "] },"
    done
    echo "] }"
} >"$place/rules.json5"
"$(dirname "$(readlink -f "$0")")/mcrd" supervisor --config "$place/rules.json5" --interface "$1" --num-workers 1 \
    --control-socket-path "$place/control.sock" &
relay=$!
wait "$relay"
ARM
chmod +x "$prefix/bin/mcr-arm"
echo "mcr.sh: $prefix/bin/mcrd and $prefix/bin/mcr-arm"
