#!/usr/bin/env python3
"""Give a network namespace VLAN interfaces on kernels that have no 8021q module.

Each --tap NAME=TPID.VID[,TPID.VID] creates a TAP interface NAME and joins it to the Ethernet interface --link: a
frame the kernel sends into the tap leaves the link with the tags put after its addresses (outermost first), and a
frame that arrives on the link with exactly these tags enters the tap without them.  Real programs therefore talk over
real tagged frames.  It must run as root inside the namespace, and prints "ready" once all taps exist; addresses, MTU
and state of the taps are the caller's.  It ends on SIGTERM, and the taps with it.  It does not strip or rewrite
priorities: sent tags carry PRIORITY, received ones are matched by TPID and VID alone.
"""

import argparse
import errno
import fcntl
import selectors
import signal
import socket
import struct
import sys

PRIORITY = 3  # a value other than zero, so that a parser that mixes up the bits of the tag is seen
FRAME_BYTES_MAX = 2048  # the link's MTU is 1500
ETH_P_ALL = 3
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
VLAN_TPIDS = (0x8100, 0x88A8, 0x9100)


def parse_tap(text):
    """NAME=TPID.VID[,TPID.VID] -> (name, ((tpid, vid), ...)); TPID in hex, VID in decimal."""
    name, _, stack = text.partition("=")
    tags = tuple((int(tpid, 16), int(vid)) for tpid, vid in (tag.split(".") for tag in stack.split(",")))
    return name, tags


def open_tap(name):
    """Create the tap interface and return its file object."""
    tap = open("/dev/net/tun", "r+b", buffering=0)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


def open_link(name):
    """Open a packet socket that sees every arriving frame and tells about the tag the kernel has already taken off."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    link.bind((name, ETH_P_ALL))
    return link


def receive_tagged(link):
    """Receive one frame: (its tags outermost first, the frame without them)."""
    frame, control, _, _ = link.recvmsg(FRAME_BYTES_MAX, 256)
    tags = []
    for level, kind, data in control:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", data)
            if status & TP_STATUS_VLAN_VALID:
                tags.append((tpid if status & TP_STATUS_VLAN_TPID_VALID else 0x8100, tci & 0xFFF))
    addresses, rest = frame[:12], frame[12:]
    while len(rest) >= 4 and struct.unpack("!H", rest[:2])[0] in VLAN_TPIDS:
        tpid, tci = struct.unpack("!HH", rest[:4])
        tags.append((tpid, tci & 0xFFF))
        rest = rest[4:]
    return tuple(tags), addresses + rest


def deliver(tap, frame):
    """Put a frame into the tap; one that is down drops it, as any interface does."""
    try:
        tap.write(frame)
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def main():
    """Move frames between the link and the taps until SIGTERM."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--link", required=True)
    arguments.add_argument("--tap", required=True, action="append", type=parse_tap)
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    link = open_link(options.link)
    tap_of_tags = {tags: open_tap(name) for name, tags in options.tap}
    selector = selectors.DefaultSelector()
    selector.register(link, selectors.EVENT_READ)
    for tags, tap in tap_of_tags.items():
        header = b"".join(struct.pack("!HH", tpid, PRIORITY << 13 | vid) for tpid, vid in tags)
        selector.register(tap, selectors.EVENT_READ, header)
    print("ready", flush=True)

    while True:
        for key, _ in selector.select():
            if key.fileobj is link:
                tags, frame = receive_tagged(link)
                tap = tap_of_tags.get(tags)
                if tap:
                    deliver(tap, frame)
            else:
                frame = key.fileobj.read(FRAME_BYTES_MAX)
                link.send(frame[:12] + key.data + frame[12:])


if __name__ == "__main__":
    main()
