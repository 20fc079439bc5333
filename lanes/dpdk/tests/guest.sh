#!/bin/sh
# Runs a command on a kernel that has tc flower, which net_tap's rules need and the kernel of this class
# of machine lacks: User Mode Linux, an ordinary program, over this machine's own files. The output and
# the exit code are the command's.
#
#   lanes/dpdk/tests/guest.sh COMMAND ARGUMENT...
#
# Needs root, busybox and Debian's user-mode-linux; exit code 77 and a reason if one is missing. UML=FILE
# and UML_MODULES=FOLDER name another kernel. What must always hold: the machine's files are read-only in
# the guest, except for the folder of its own, and everything of it ends with this script, after GUEST_S
# seconds (600) at the latest. There is one CPU in it, and no network but its own. It has no huge pages.
set -eu

MODULES="drivers/net/tun drivers/net/veth net/sched/sch_ingress net/sched/sch_multiq
net/sched/cls_flower net/sched/act_gact net/sched/act_mirred net/sched/act_skbedit"

missing() {
    echo "$1" >&2
    exit 77
}

kernel=${UML:-$(command -v linux.uml || true)}
[ -n "$kernel" ] || missing "no User Mode Linux here (\`apt-get install user-mode-linux\`)"
modules=${UML_MODULES:-$(ls -d /usr/lib/uml/modules/*/kernel 2>/dev/null | tail -n 1)}
[ -d "$modules" ] || missing "no modules of User Mode Linux in \`$modules\`"
command -v busybox >/dev/null || missing "no busybox here (\`apt-get install busybox\`)"
[ "$(id -u)" = 0 ] || missing "the guest reads the machine's files as root"

own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
trap 'exit 1' HUP INT TERM
# One word of a shell, whatever is in it.
quoted() {
    printf "'%s' " "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}
{
    echo '#!/bin/sh'
    for name in $(env | sed -n 's/^\(PATH\|RUST_[A-Z_]*\|LANEWAY_[A-Z_]*\)=.*/\1/p'); do
        eval "printf 'export %s=' $name; quoted \"\$$name\"; echo"
    done
    echo 'mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run'
    # The kernel mounts it itself, if it was built so.
    echo '[ -c /dev/null ] || mount -t devtmpfs dev /dev'
    echo 'mkdir -p /dev/shm /run/tmp && mount -t tmpfs tmpfs /dev/shm && mount -t bpf bpf /sys/fs/bpf'
    for module in $MODULES; do
        echo "[ ! -e $modules/$module.ko ] || busybox insmod $modules/$module.ko"
    done
    echo 'ip link set dev lo up; export TMPDIR=/run/tmp LANEWAY_GUEST=1'
    printf 'mkdir /run/own && mount -t hostfs -o %s none /run/own && cd %s\n' "$own" "$(quoted "$PWD")"
    echo ': >/run/own/begun'
    for word in "$@"; do quoted "$word"; done
    echo '>/run/own/out 2>/run/own/err </dev/null'
    echo 'echo $? >/run/own/code; busybox sync; busybox poweroff -f'
} >"$own/init"
chmod +x "$own/init"

# The guest's memory is a file that has no name; `timeout` ends all processes of it.
TMPDIR=/tmp timeout -k 5 "${GUEST_S:-600}" "$kernel" "mem=${GUEST_MB:-768}M" rootfstype=hostfs \
    rootflags=/ ro "init=$own/init" quiet panic=1 con=null con0=null,fd:1 con1=null,fd:1 \
    >"$own/console" 2>&1 </dev/null || true
if [ ! -e "$own/begun" ]; then
    missing "User Mode Linux does not start here: $(tail -n 3 "$own/console" | tr '\n' ' ')"
fi
if [ ! -s "$own/code" ]; then
    echo "the guest ended without an answer; its last words:" >&2
    tail -n 20 "$own/console" >&2
    cat "$own/out" "$own/err" 2>/dev/null >&2 || true
    exit 1
fi
cat "$own/out"
cat "$own/err" >&2
code=$(cat "$own/code")
exit "$code"
