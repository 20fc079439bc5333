#!/usr/bin/env python3
"""Makes two captures for docs/measurements/nfstream-bench.py out of the shared ones: many flows and few.

    python3 docs/measurements/nfstream-captures.py OUT_DIR [PACKETS]

PACKETS (of each) is 1,360,000 unless given: 130,000 flows in many.pcap, 8 in few.pcap, 350 MB each.

Takes every whole, unfragmented IPv4 TCP or UDP frame of the classic Ethernet captures under
../shared/pcaps, in file order, and loops them, 10 us apart, so that nothing times out.
  many.pcap  each loop's addresses have the loop's number added to them: new flows per loop
  few.pcap   addresses and ports are those of one of 8 flows, chosen by the frame's own flow and
             protocol; direction kept
Checksums are not corrected: neither program looks at them. Prints flows (by 5-tuple) and packets.
"""

import glob
import os
import struct
import sys

SHARED = "../shared/pcaps/**/*.pcap"


def frames():
    for path in sorted(glob.glob(SHARED, recursive=True)):
        data = open(path, "rb").read()
        order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">",
                 b"\xa1\xb2\x3c\x4d": ">"}.get(data[:4])
        if order is None or len(data) < 24 or struct.unpack_from(order + "I", data, 20)[0] != 1:
            continue
        at = 24
        while at + 16 <= len(data):
            captured, wire = struct.unpack_from(order + "II", data, at + 8)
            frame = data[at + 16 : at + 16 + captured]
            at += 16 + captured
            if len(frame) < captured or captured != wire or not 42 <= captured <= 1514:
                continue
            if frame[12:14] != b"\x08\x00" or frame[14] != 0x45 or frame[23] not in (6, 17):
                continue
            total, = struct.unpack_from("!H", frame, 16)
            fragment, = struct.unpack_from("!H", frame, 20)
            need = 20 + (20 if frame[23] == 6 else 8)
            if fragment & 0x3FFF or not need <= total <= captured - 14:
                continue
            if frame[23] == 6 and not 20 <= (frame[46] >> 4) * 4 <= total - 20:
                continue
            yield frame


def tuple_of(frame):
    return frame[23], frame[26:30], frame[30:34], frame[34:36], frame[36:38]


def many(frame, loop):
    source, destination = struct.unpack_from("!II", frame, 26)
    low, high = (source + loop * 0x10001) & 0xFFFFFFFF, (destination + loop * 0x10001) & 0xFFFFFFFF
    return frame[:26] + struct.pack("!II", low, high) + frame[34:]


def few(frame, loop):
    proto, source, destination, source_port, destination_port = tuple_of(frame)
    ends = sorted([(source, source_port), (destination, destination_port)])
    which = sum(b"".join(a + p for a, p in ends)) % 4 + (4 if proto == 6 else 0)
    a = (bytes([10, 0, 0, 1]), struct.pack("!H", 1000 + which))
    b = (bytes([10, 0, 0, 2]), struct.pack("!H", 80))
    if (source, source_port) != ends[0]:
        a, b = b, a
    return frame[:26] + a[0] + b[0] + a[1] + b[1] + frame[38:]


def write(path, rewrite, base, packets):
    flows = set()
    with open(path, "wb", buffering=1 << 20) as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for n in range(packets):
            loop, which = divmod(n, len(base))
            frame = rewrite(base[which], loop)
            proto, *ends = tuple_of(frame)
            flows.add((proto, frozenset([(ends[0], ends[2]), (ends[1], ends[3])])))
            seconds, us = divmod(n * 10, 1_000_000)
            out.write(struct.pack("<IIII", 1_700_000_000 + seconds, us, len(frame), len(frame)))
            out.write(frame)
    print(f"{path}: {len(flows)} flows, {packets} packets, {os.path.getsize(path)} bytes")


def main():
    folder = sys.argv[1]
    packets = int(sys.argv[2]) if len(sys.argv) > 2 else 1_360_000
    base = list(frames())
    print(f"{len(base)} frames to loop")
    write(os.path.join(folder, "many.pcap"), many, base, packets)
    write(os.path.join(folder, "few.pcap"), few, base, packets)


if __name__ == "__main__":
    main()
