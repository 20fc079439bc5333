#!/bin/busybox sh
# The first process of the guest. Loads the modules of the initrd, lays an overlay over the host's files,
# which it has read-only over 9p, and runs guest.sh there. What must always hold: nothing of the host but
# the run's own folder (tag `own`) can be written, and the guest powers off however guest.sh ends.
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host /upper /new
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev

# In no order of need: rounds, until one loads nothing more.
before=-1
while :; do
    for module in /modules/*.ko; do $b insmod "$module" 2>/dev/null; done
    now=$($b wc -l </proc/modules)
    [ "$now" != "$before" ] || break
    before=$now
done

# As udev has it: bash's <( ) needs it.
$b ln -s /proc/self/fd /dev/fd

over9p() {
    $b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,$3" "$1" "$2"
}
over9p host /host ro,cache=loose
$b mount -t tmpfs upper /upper
$b mkdir /upper/changes /upper/work
$b mount -t overlay -o lowerdir=/host,upperdir=/upper/changes,workdir=/upper/work overlay /new
for mount in proc:proc sysfs:sys devtmpfs:dev tmpfs:run tmpfs:tmp tmpfs:dev/shm bpf:sys/fs/bpf \
    tracefs:sys/kernel/tracing; do
    $b mkdir -p "/new/${mount#*:}"
    $b mount -t "${mount%%:*}" "${mount%%:*}" "/new/${mount#*:}"
done
$b mkdir -p /new/run/netns /new/run/own
over9p own /new/run/own rw
$b ip link set dev lo up
$b chroot /new /bin/bash /run/own/guest.sh
$b sync
$b poweroff -f
