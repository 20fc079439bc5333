#!/bin/bash
# What the guest does, one step after the other: the modes of `laneway lanes`, every eBPF object, the tests
# of the list, in the long form a race. Runs in the folder of vm-test.sh's own (tag `own`), which holds:
#   root      the repository's path
#   kernel    6.1 or 6.12
#   laneway   the binary's path
#   steps     one step a line: seconds at most, name, command
# Each step leaves NAME.log there; the last line of `end` says how many failed. Lines that begin with
# `vm: ` are shown while it runs.
set -u
own=/run/own
root=$(cat $own/root)
kernel=$(cat $own/kernel)
laneway=$(cat $own/laneway)
export HOME=/tmp TMPDIR=/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The shipped captures alone: an emulated CPU takes too long for those that may lie beside the tree.
[ ! -d "$root/../shared" ] || mount -t tmpfs none "$root/../shared"
cd "$root" || exit 1
failed=0

# Modes that are not to be had, by kernel (`any`) and mode, and what the sentence of `lanes` must say.
missing_modes() {
    cat <<'TABLE'
6.1 uring:bundle Linux 6.10
6.1 uring:napi=20 Linux 6.9
6.1 afxdp:sg Linux 6.6
any afxdp:zero-copy veth has no zero copy
any afxdp:hugepages cannot map a umem
any dpdk:net_null,hugepages no huge page
TABLE
}

# Every mode is there, or in the table with the reason that `lanes` gives.
lanes() {
    local text mode answer sentence expected unfit=0
    text=$(timeout --kill-after=5 "$1" "$laneway" lanes) || { echo "$text"; return 1; }
    echo "$text"
    while read -r answer mode sentence; do
        expected=$(missing_modes | awk -v k="$kernel" -v m="$mode" \
            '($1 == k || $1 == "any") && $2 == m { sub(/^[^ ]+ [^ ]+ /, ""); print; exit }')
        case $answer in
            yes) [ -z "$expected" ] || { echo "unfit: $mode works, the table of guest.sh says it lacks $expected"; unfit=1; } ;;
            no)
                if [ "${sentence#likewise}" != "$sentence" ]; then sentence=$above; fi
                above=$sentence
                if [ -z "$expected" ]; then
                    # A library that the host does not have is nothing of the kernel's.
                    if [ "${mode#dpdk}" != "$mode" ] && [ ! -e /usr/include/dpdk ]; then
                        echo "skipped: $mode: DPDK is not installed on the host"
                    else
                        echo "unfit: $mode is missing: $sentence"; unfit=1
                    fi
                elif [ "${sentence#*"$expected"}" = "$sentence" ]; then
                    echo "unfit: $mode: the sentence does not say \`$expected\`: $sentence"; unfit=1
                fi ;;
        esac
    done < <(sed -n 's/^  \(yes\|no\)  */\1 /p' <<<"$text")
    return $unfit
}

# A short race ends with a report. Which verdict, no emulated CPU can say: all that was measured may be invalid.
race() {
    timeout --kill-after=5 "$1" "$laneway" race features --quick --out /tmp/race
    local code=$?
    echo "race features --quick ended with $code"
    case $code in 0 | 1 | 3 | 4) [ -s /tmp/race/report.html ] ;; *) return 1 ;; esac
}

step() {
    local seconds=$1 name=$2 begin=$SECONDS code
    shift 2
    case $1 in
    lanes) lanes "$seconds" >"$own/$name.log" 2>&1 </dev/null ;;
    race) race "$seconds" >"$own/$name.log" 2>&1 </dev/null ;;
    nics) shift && timeout --kill-after=20 "$seconds" bash $own/nics.sh "$laneway" "$kernel" "$@" >"$own/$name.log" 2>&1 </dev/null ;;
    *) timeout --kill-after=5 "$seconds" "$@" >"$own/$name.log" 2>&1 </dev/null ;;
    esac
    code=$?
    # A list of tests that names none would be green and show nothing.
    if grep -q '^running 0 tests' "$own/$name.log"; then
        echo 'no test of this name' >>"$own/$name.log"
        code=1
    fi
    if [ $code -eq 0 ]; then
        echo "vm: $kernel: $name: ok, $((SECONDS - begin)) s"
    else
        echo "vm: $kernel: $name: FAILED with $code, $((SECONDS - begin)) s"
        failed=$((failed + 1))
    fi
}

echo; echo "vm: $kernel: $(uname -r) is up after $(cut -d ' ' -f 1 /proc/uptime) s"
above=
while read -r seconds name command; do
    # Commands are words without blanks in them.
    # shellcheck disable=SC2086
    step "$seconds" "$name" $command
done <$own/steps
echo $failed >$own/end
