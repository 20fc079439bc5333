#!/usr/bin/env python3
"""Legitimate but rare packets that no ordinary client program sends, made through the kernel's own socket interface.

`serve` joins multicast groups and echoes UDP, UDP-Lite, TCP and MPTCP until it is ended; `drive` sends to it.  Both
print "ready" or finish silently.  Headers and checksums are the kernel's, except where a program in user space must
write them: `drive_headers_v6`, `drive_accurate_ecn` and `send_link_frames`.  Only addresses set aside for documentation
are used.  Malformed packets are not made here.
"""

import argparse
import contextlib
import selectors
import socket
import struct
import time

UDP_PORT, UDPLITE_PORT, TCP_PORT, MPTCP_PORT, MULTICAST_PORT = 7001, 7002, 7003, 7004, 7005
CLOSED_PORT = 9999
GROUP_V4, GROUP_V6 = "233.252.0.1", "ff0e::db8:0:1"  # multicast set aside for documentation, RFC 6676
BROADCAST = "192.0.2.255"
ACCURATE_ECN_PORT = 7006  # of the client
IPPROTO_UDPLITE, IPPROTO_MPTCP, IPPROTO_EXPERIMENT, IPPROTO_NO_NEXT = 136, 262, 253, 59
IPPROTO_FRAGMENT, IPPROTO_AH, IPPROTO_MOBILITY, IPPROTO_HIP, IPPROTO_SHIM6 = 44, 51, 135, 139, 140
SO_NO_CHECK, TCP_FASTOPEN, MSG_FASTOPEN = 11, 23, 0x20000000
UDPLITE_SEND_COVERAGE = 10
ETHERTYPE_IPV4, ETHERTYPE_EXPERIMENT = 0x0800, 0x88B5
FRAME_BYTES_MIN = 60  # what a wire pads shorter frames to, without the frame check sequence

# Option bytes as RFC 791, RFC 2113 and RFC 8200 write them.
IPV4_ROUTER_ALERT = bytes([148, 4, 0, 0])
IPV4_NOPS_AND_END = bytes([1, 1, 1, 0])
IPV6_ROUTER_ALERT = bytes([0, 0, 5, 2, 0, 0, 1, 0])
IPV6_PADN = bytes([0, 0, 1, 4, 0, 0, 0, 0])
IPV6_PADN_LONG = bytes([0, 2, 1, 20]) + bytes(20)


def join_groups(interface):
    """Join both groups on the interface and return the sockets that keep the membership."""
    v4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    index = socket.if_nametoindex(interface)
    request = struct.pack("4s4si", socket.inet_aton(GROUP_V4), bytes(4), index)
    v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    v4.bind(("", MULTICAST_PORT))
    v6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    request = socket.inet_pton(socket.AF_INET6, GROUP_V6) + struct.pack("I", index)
    v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
    v6.bind(("::", MULTICAST_PORT))
    return v4, v6


def serve(interface):
    """Echo what arrives on each port until ended."""
    selector = selectors.DefaultSelector()
    groups = join_groups(interface)
    for protocol, port in ((socket.IPPROTO_UDP, UDP_PORT), (IPPROTO_UDPLITE, UDPLITE_PORT)):
        datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, protocol)
        datagrams.bind(("::", port))
        selector.register(datagrams, selectors.EVENT_READ, "datagrams")
    for protocol, port in ((socket.IPPROTO_TCP, TCP_PORT), (IPPROTO_MPTCP, MPTCP_PORT)):
        listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if protocol == socket.IPPROTO_TCP:
            listener.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 16)
        listener.bind(("::", port))
        listener.listen(16)
        selector.register(listener, selectors.EVENT_READ, "listener")
    print("ready", flush=True)
    while groups:
        for key, _ in selector.select():
            if key.data == "datagrams":
                payload, sender = key.fileobj.recvfrom(65535)
                key.fileobj.sendto(payload, sender)
            elif key.data == "listener":
                selector.register(key.fileobj.accept()[0], selectors.EVENT_READ, "stream")
            else:
                payload = b""
                with contextlib.suppress(ConnectionError):
                    payload = key.fileobj.recv(65535)
                    if payload:
                        key.fileobj.sendall(payload)
                if not payload:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def udp_to(server, options=(), sizes=(64,), port=UDP_PORT, protocol=socket.IPPROTO_UDP):
    """Send one datagram per size with the socket options set, and take the echo where there is one."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as datagrams:
        datagrams.settimeout(1)
        for level, name, value in options:
            datagrams.setsockopt(level, name, value)
        for size in sizes:
            datagrams.sendto(bytes(i % 256 for i in range(size)), (server, port))
            with contextlib.suppress(ConnectionError, TimeoutError):
                datagrams.recv(65535)


def connect(server, port, options=(), protocol=socket.IPPROTO_TCP):
    """Connect a stream with the socket options set."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    stream = socket.socket(family, socket.SOCK_STREAM, protocol)
    stream.settimeout(2)
    for level, name, value in options:
        stream.setsockopt(level, name, value)
    stream.connect((server, port))
    return stream


def drive_udp(v4, v6):
    """Datagrams: empty, fragmented, without checksum, partly covered, with options, with marks, to a closed port."""
    ip, ip6 = socket.IPPROTO_IP, socket.IPPROTO_IPV6
    for server in (v4, v6):
        udp_to(server, sizes=(0, 1, 63, 64, 512, 1452, 1472, 1473, 3000, 9000))
        udp_to(server, port=CLOSED_PORT)
        udp_to(server, sizes=(5, 200), port=UDPLITE_PORT, protocol=IPPROTO_UDPLITE)
        udp_to(server, [(IPPROTO_UDPLITE, UDPLITE_SEND_COVERAGE, 20)], (300,), UDPLITE_PORT, IPPROTO_UDPLITE)
    udp_to(v4, [(socket.SOL_SOCKET, SO_NO_CHECK, 1)], (1, 100))
    udp_to(v4, [(ip, socket.IP_OPTIONS, IPV4_ROUTER_ALERT)], (32, 3000))
    udp_to(v4, [(ip, socket.IP_OPTIONS, IPV4_NOPS_AND_END * 10)], (32,))
    udp_to(v4, [(ip, socket.IP_TOS, 0xB8), (ip, socket.IP_TTL, 255)])
    udp_to(v6, [(ip6, socket.IPV6_TCLASS, 0xB8), (ip6, socket.IPV6_UNICAST_HOPS, 255)])
    udp_to(v6, [(ip6, socket.IPV6_HOPOPTS, IPV6_ROUTER_ALERT)], (32, 3000))
    udp_to(v6, [(ip6, socket.IPV6_DSTOPTS, IPV6_PADN)], (32, 3000))
    both = [(ip6, socket.IPV6_HOPOPTS, IPV6_ROUTER_ALERT), (ip6, socket.IPV6_DSTOPTS, IPV6_PADN_LONG)]
    udp_to(v6, both, (0, 40, 4000))
    # Segment routing with the server as the only segment, already reached: RFC 8754.
    segments = bytes([0, 2, 4, 0, 0, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, v6)
    udp_to(v6, [(ip6, socket.IPV6_RTHDR, segments)], (32, 100))


def drive_groups(interface):
    """Join and leave the groups here too, and send to them and to the broadcast address."""
    members = join_groups(interface)
    for server in (GROUP_V4, GROUP_V6, BROADCAST):
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
            for size in (20, 300, 1400):
                datagrams.sendto(bytes(size), (server, MULTICAST_PORT))
    time.sleep(1.2)  # the kernel repeats a report within a second
    for member in members:
        member.close()


def drive_tcp(v4, v6):
    """Streams: urgent data, reset by the client, fast open, options in every segment, keep-alive, half-close, MPTCP."""
    for server in (v4, v6):
        with connect(server, TCP_PORT) as stream:
            stream.send(b"before")
            stream.send(b"!", socket.MSG_OOB)
            stream.send(b"after")
            time.sleep(0.05)
        with connect(server, TCP_PORT) as stream:
            stream.sendall(b"reset")
            stream.recv(16)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with connect(server, TCP_PORT) as stream:
            stream.sendall(b"half-close")
            stream.shutdown(socket.SHUT_WR)
            while stream.recv(64):
                pass
        for _ in range(3):  # the first asks for a cookie, the others carry data in the SYN
            with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_STREAM) as stream:
                stream.sendto(b"fast open", MSG_FASTOPEN, (server, TCP_PORT))
                stream.recv(64)
        with connect(server, MPTCP_PORT, protocol=IPPROTO_MPTCP) as stream:
            for size in (1, 100, 5000):
                stream.sendall(bytes(size))
                stream.recv(65535)
        with contextlib.suppress(ConnectionRefusedError):
            connect(server, CLOSED_PORT)
    router_alert = [(socket.IPPROTO_IP, socket.IP_OPTIONS, IPV4_ROUTER_ALERT)]
    with connect(v4, TCP_PORT, router_alert) as stream:
        stream.sendall(bytes(2000))
        stream.recv(65535)
    destination = [(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, IPV6_PADN)]
    with connect(v6, TCP_PORT, destination) as stream:
        stream.sendall(bytes(2000))
        stream.recv(65535)
    probes = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)]
    with connect(v4, TCP_PORT, [*probes, (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)]) as stream:
        time.sleep(2.3)
        stream.sendall(b"still here")
        stream.recv(64)


def drive_slow_reader(v4):
    """Fetch a large file over HTTP but read nothing at first: the window closes and is probed."""
    with connect(v4, 80, [(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)]) as stream:
        stream.sendall(b"GET /text-10k HTTP/1.0\r\nHost: www.example.net\r\n\r\n")
        time.sleep(1.5)
        while stream.recv(65535):
            pass


def drive_raw(v4, v6):
    """Protocols without a listener (answered by ICMP), and IPv6's "no next header"."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, IPPROTO_EXPERIMENT) as raw:
        for size in (0, 40, 2000):
            raw.sendto(bytes(size), (v4, 0))
    for protocol in (IPPROTO_EXPERIMENT, IPPROTO_NO_NEXT):
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol) as raw:
            for size in (0, 40):
                raw.sendto(bytes(size), (v6, 0, 0, 0))


def internet_checksum(data):
    """The ones' complement sum of RFC 1071 over 16-bit words, complemented."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def with_checksum(source, destination, protocol, segment, at):
    """The segment with the checksum over it and its pseudo-header written at a byte offset."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    ends = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
    kind = "!I3xB" if family == socket.AF_INET6 else "!xBH"
    values = (len(segment), protocol) if family == socket.AF_INET6 else (protocol, len(segment))
    checksum = internet_checksum(ends + struct.pack(kind, *values) + segment)
    return segment[:at] + struct.pack("!H", checksum or 0xFFFF) + segment[at + 2 :]


def udp_datagram(source, destination, port, payload):
    """A UDP header with its checksum, and the payload."""
    header = struct.pack("!HHHH", port, port, 8 + len(payload), 0)
    return with_checksum(source, destination, socket.IPPROTO_UDP, header + payload, at=6)


def source_towards(server):
    """The address that packets to the server carry."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((server, UDP_PORT))
        return probe.getsockname()[0]


def drive_headers_v6(v6):
    """Extension headers this kernel makes for no socket: each before UDP, or last where its standard wants that.

    The keyed digest of the authentication header stands for one whose key only the two ends know.
    """
    source = source_towards(v6)
    datagram = udp_datagram(source, v6, UDP_PORT, bytes(range(24)))
    whole = struct.pack("!BBHI", socket.IPPROTO_UDP, 0, 0, 0x1A2E0001) + datagram  # "atomic" fragment, RFC 8200 4.5
    authenticated = struct.pack("!BBHII", socket.IPPROTO_UDP, 4, 0, 0x101, 1) + bytes(range(12)) + datagram
    refresh = bytes([IPPROTO_NO_NEXT, 0, 0, 0, 0, 0, 0, 0])  # binding refresh request; the kernel adds the checksum
    first = bytes([IPPROTO_NO_NEXT, 4, 1, 0x21, 0, 0, 0, 0])  # HIP's I1 of RFC 7401, to any host there
    first += socket.inet_pton(socket.AF_INET6, source) + bytes(16)
    first = with_checksum(source, v6, IPPROTO_HIP, first, at=4)
    context = bytes([socket.IPPROTO_UDP, 0, 0x80, 0, 0, 0, 0, 7]) + datagram  # shim6 payload of RFC 5533
    for protocol, packet in (
        (IPPROTO_FRAGMENT, whole),
        (IPPROTO_AH, authenticated),
        (IPPROTO_MOBILITY, refresh),
        (IPPROTO_HIP, first),
        (IPPROTO_SHIM6, context),
    ):
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol) as raw:
            raw.sendto(packet, (v6, 0, 0, 0))


def drive_accurate_ecn(v4):
    """The SYN of a client that offers accurate ECN (AE, CWR and ECE set); the kernel resets what the server answers."""
    options = bytes([2, 4, 5, 180])  # maximum segment size 1460
    segment = struct.pack("!HHIIBBHHH", ACCURATE_ECN_PORT, TCP_PORT, 0x10203040, 0, 6 << 4 | 1, 0xC2, 64240, 0, 0)
    segment = with_checksum(source_towards(v4), v4, socket.IPPROTO_TCP, segment + options, at=16)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.sendto(segment, (v4, 0))


def padded_datagram(source):
    """IPv4 with one byte over UDP to the broadcast address, and the padding that a wire's shortest frame needs."""
    datagram = udp_datagram(source, BROADCAST, MULTICAST_PORT, b"x")
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 1, 0, 64, socket.IPPROTO_UDP, 0)
    header += socket.inet_aton(source) + socket.inet_aton(BROADCAST)
    header = header[:10] + struct.pack("!H", internet_checksum(header)) + header[12:]
    packet = struct.pack("!H", ETHERTYPE_IPV4) + header + datagram
    return packet + bytes(FRAME_BYTES_MIN - 12 - len(packet))


def send_link_frames(interface, v4):
    """An experimental type, an LLC frame with a length, padding after IP, a priority tag (VLAN 0), three tags."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as link:
        link.bind((interface, 0))
        source = link.getsockname()[4]
        broadcast, bridges = b"\xff" * 6, bytes.fromhex("0180c2000000")
        experiment = struct.pack("!H", ETHERTYPE_EXPERIMENT)
        link.send(broadcast + source + experiment + bytes(46))
        padded = padded_datagram(source_towards(v4))
        link.send(broadcast + source + padded)
        link.send(broadcast + source + struct.pack("!HH", 0x8100, 5 << 13) + padded)
        tags = struct.pack("!HHHHHH", 0x88A8, 20, 0x8100, 30, 0x8100, 31)
        link.send(broadcast + source + tags + experiment + bytes(46))
        # A spanning-tree configuration message as IEEE 802.1D lays it out: LLC 42 42 03, then root and bridge ids.
        bridge = struct.pack("!H", 0x8000) + source
        times = struct.pack("<HHHH", 0, 20, 2, 15)
        message = bytes.fromhex("424203") + bytes(5) + bridge + bytes(4) + bridge + struct.pack("!H", 0x8001) + times
        link.send(bridges + source + struct.pack("!H", len(message)) + message + bytes(8))


def main():
    """Read the command line and run one side."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("side", choices=("serve", "drive"))
    arguments.add_argument("interface")
    arguments.add_argument("server_v4", nargs="?")
    arguments.add_argument("server_v6", nargs="?")
    options = arguments.parse_args()
    if options.side == "serve":
        serve(options.interface)
        return
    if not options.server_v6:
        arguments.error("drive needs the server's two addresses")
    drive_udp(options.server_v4, options.server_v6)
    drive_groups(options.interface)
    drive_tcp(options.server_v4, options.server_v6)
    drive_slow_reader(options.server_v4)
    drive_raw(options.server_v4, options.server_v6)
    drive_headers_v6(options.server_v6)
    drive_accurate_ecn(options.server_v4)
    send_link_frames(options.interface, options.server_v4)


if __name__ == "__main__":
    main()
