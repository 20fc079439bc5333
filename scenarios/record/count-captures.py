#!/usr/bin/env python3
"""Check the recorded captures and write what they hold into README.md, as counted by tshark.

`check FILE` fails unless every row of the table below has packets, no checksum is wrong, no packet is malformed, no
frame is longer than an MTU of 1500 allows, and every address is one set aside for documentation, local to the link,
or made up by the recorder.  `readme README VERSIONS FILE...` replaces the part of README between the two marker lines.
tshark is the only parser here, so that the figures do not come from the code that the captures are meant to test.

A flow is both directions of the same VLAN tags, protocol, addresses and ports (none for ICMP and the like).  Ports
that are used twice count as one flow.  Fragments after the first count as packets of IP only, since they show no port.
"""

import argparse
import collections
import hashlib
import ipaddress
import pathlib
import shutil
import subprocess
import tempfile

FRAME_BYTES_MAX = 1518  # 1500 of MTU, 14 of Ethernet, 4 of a tag; the recorder's QinQ interface has an MTU of 1492
TRANSPORTS = ("tcp", "udp", "udplite", "sctp", "icmp", "icmpv6", "igmp")
CHECKSUMS = ("ip", "tcp", "udp", "sctp", "icmp", "icmpv6", "igmp")
EXTENSION_HEADERS = (
    "ipv6.hopopts", "ipv6.dstopts", "ipv6.routing", "ipv6.fraghdr", "ah", "mipv6", "hip", "shim6",
)  # fmt: skip
PORT_FIELDS = {"tcp": "tcp", "udp": "udp", "udplite": "udp", "sctp": "sctp"}  # tshark names UDP-Lite's as UDP's
FIELDS = [
    "frame.len", "frame.protocols", "eth.src", "eth.dst", "eth.type", "vlan.id", "ieee8021ad.id", "ip.src", "ip.dst",
    "ip.proto", "ip.hdr_len", "ip.flags.mf", "ip.frag_offset", "ipv6.src", "ipv6.dst", "ipv6.hopopts", "ipv6.dstopts",
    "ipv6.fraghdr.offset", "ipv6.fraghdr.more", "eth.padding", "tcp.flags.ae", "tcp.flags.reset", "tcp.flags.urg",
    "tcp.flags.syn", "tcp.flags.ece", "tcp.len", "_ws.malformed", "tcp.analysis.retransmission",
    "tcp.analysis.zero_window", "tcp.options.mptcp.subtype", "ipv6.nxt", "icmpv6.type", "udp.checksum",
    "tcp.checksum", "tcp.checksum_calculated",
    *(f"{layer}.{side}port" for layer in ("tcp", "udp", "sctp") for side in ("src", "dst")),
    *(f"{layer}.checksum.status" for layer in CHECKSUMS),
]  # fmt: skip
BAD_CHECKSUM = "0"
# Reassembly is off so that each packet is counted for what it carries itself.
PREFERENCES = [
    "ip.defragment:FALSE", "ipv6.defragment:FALSE", "ip.check_checksum:TRUE", "tcp.check_checksum:TRUE",
    "udp.check_checksum:TRUE", "sctp.checksum:TRUE", "tcp.desegment_tcp_streams:FALSE",
]  # fmt: skip
ADDRESSES_ALLOWED = [
    ipaddress.ip_network(net)
    for net in (
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "233.252.0.0/24", "0.0.0.0/32", "255.255.255.255/32",
        "224.0.0.0/24", "2001:db8::/32", "fe80::/64", "::/128", "ff02::/16", "ff0e::db8:0:0/96",
    )
]  # fmt: skip
MACS_ALLOWED = ("02:00:5e:00:53:", "ff:ff:ff:ff:ff:ff", "01:00:5e:", "33:33:", "01:80:c2:00:00:0")


class Packet:
    """The first value of each field of one packet, and the flow it belongs to (None if it shows none)."""

    def __init__(self, line):
        values = dict(zip(FIELDS, line.split("\t"), strict=True))
        self.all = values
        self.first = {name: value.split(",")[0] for name, value in values.items()}
        self.layers = values["frame.protocols"].split(":")
        self.bytes = int(self.first["frame.len"])
        self.tags = tuple(values[name] for name in ("ieee8021ad.id", "vlan.id"))
        self.tag_count = sum(len(ids.split(",")) for ids in self.tags if ids)
        self.v4, self.v6 = bool(self.first["ip.src"]), bool(self.first["ipv6.src"])
        if self.v4 and self.v6:  # a tunnel or a quoted packet: the outer header is named first
            outer = next(layer for layer in self.layers if layer in ("ip", "ipv6"))
            self.v4, self.v6 = outer == "ip", outer == "ipv6"
        family = "ip" if self.v4 else "ipv6"
        self.source, self.destination = self.first[f"{family}.src"], self.first[f"{family}.dst"]
        self.later_fragment = self.v4 and self.first["ip.frag_offset"] not in ("", "0")
        self.later_fragment |= self.v6 and self.first["ipv6.fraghdr.offset"] not in ("", "0")
        self.transport = None
        if not self.later_fragment:
            self.transport = next((layer for layer in self.layers if layer in TRANSPORTS), None)
        ends = (place for place, layer in enumerate(self.layers) if layer in TRANSPORTS)
        # Its own network layers: what an ICMP error quotes and a tunnel carries comes later.
        self.outer = self.layers[: next(ends, len(self.layers))]
        self.ports = ("", "")
        if self.transport in PORT_FIELDS:
            layer = PORT_FIELDS[self.transport]
            self.ports = (self.first[f"{layer}.srcport"], self.first[f"{layer}.dstport"])
        self.flow = None
        if (self.v4 or self.v6) and not self.later_fragment:
            headers = extension_headers(self)
            protocol = self.transport or self.first["ip.proto"] or (headers[-1] if headers else self.first["ipv6.nxt"])
            ends = sorted([(self.source, self.ports[0]), (self.destination, self.ports[1])])
            self.flow = (self.tags, protocol, *ends)

    def has_bad_checksum(self, layer):
        """Whether a checksum of this layer is wrong, in the packet itself or in what it tunnels.

        Linux writes a TCP checksum of zero as 0xffff when it computes it in software.  tshark calls that wrong, but
        both are the same number to a receiver, which adds up to all ones (RFC 1071).
        """
        if layer == "tcp" and (self.all["tcp.checksum"], self.all["tcp.checksum_calculated"]) == ("0xffff", "0x0000"):
            return False
        return BAD_CHECKSUM in self.all[f"{layer}.checksum.status"].split(",")

    def on(self, transport, *ports):
        """Whether it is of this transport and has one of the ports."""
        return self.transport == transport and any(str(port) in self.ports for port in ports)

    def flagged(self, name):
        """Whether a one-bit field is set, or a marker field is present."""
        return self.first[name] not in ("", "0")


def extension_headers(packet):
    """The packet's own IPv6 extension headers, as tshark names them."""
    return [layer for layer in packet.outer if layer in EXTENSION_HEADERS] if packet.v6 else []


def whole_with_fragment_header(packet):
    """Whether it has a fragment header though nothing was cut ("atomic fragment")."""
    cut = packet.later_fragment or packet.flagged("ipv6.fraghdr.more")
    return "ipv6.fraghdr" in extension_headers(packet) and not cut


def other_ip(packet):
    """Whether it is IP of a protocol outside the table."""
    return (packet.v4 or packet.v6) and packet.transport is None and not packet.later_fragment


# Each row: heading, what it counts, and which packets belong to it.  `check` demands that none is empty.
ROWS = [
    ("Link", "802.1Q, one tag", lambda p: p.flagged("vlan.id") and p.tag_count == 1),
    ("Link", "802.1ad with an 802.1Q tag inside (QinQ)", lambda p: p.flagged("ieee8021ad.id")),
    (
        "Link",
        "tag 0x9100 with an 802.1Q tag inside (QinQ before 802.1ad)",
        lambda p: p.first["eth.type"] in ("0x9100", "0x00009100"),
    ),
    ("Link", "three tags", lambda p: p.tag_count == 3),
    ("Link", "padding after the packet", lambda p: bool(p.first["eth.padding"])),
    ("Link", "priority tag (VLAN 0)", lambda p: p.first["vlan.id"] == "0"),
    ("Link", "ARP", lambda p: "arp" in p.layers),
    ("Link", "LLC (spanning tree)", lambda p: "llc" in p.layers),
    ("Link", "EtherType 0x88b5 (local experiment)", lambda p: p.first["eth.type"] in ("0x88b5", "0x000088b5")),
    ("Network", "IPv4", lambda p: p.v4),
    ("Network", "IPv4 with options", lambda p: p.v4 and int(p.first["ip.hdr_len"]) > 20),
    ("Network", "IPv4 fragments", lambda p: p.v4 and (p.flagged("ip.flags.mf") or p.later_fragment)),
    ("Network", "IPv6", lambda p: p.v6),
    ("Network", "IPv6 with hop-by-hop options", lambda p: "ipv6.hopopts" in extension_headers(p)),
    ("Network", "IPv6 with destination options", lambda p: "ipv6.dstopts" in extension_headers(p)),
    ("Network", "IPv6 with a routing header", lambda p: "ipv6.routing" in extension_headers(p)),
    (
        "Network",
        "IPv6 fragments",
        lambda p: "ipv6.fraghdr" in extension_headers(p) and not whole_with_fragment_header(p),
    ),
    ("Network", "IPv6 with a fragment header but whole", whole_with_fragment_header),
    ("Network", "IPv6 with an authentication header", lambda p: "ah" in extension_headers(p)),
    ("Network", "IPv6 with a mobility header", lambda p: "mipv6" in extension_headers(p)),
    ("Network", "IPv6 with a HIP header", lambda p: "hip" in extension_headers(p)),
    ("Network", "IPv6 with a shim6 header", lambda p: "shim6" in extension_headers(p)),
    ("Network", "IPv6 with two extension headers or more", lambda p: len(extension_headers(p)) > 1),
    ("Network", "VXLAN (UDP port 4789)", lambda p: p.on("udp", 4789)),
    ("Transport", "TCP", lambda p: p.transport == "tcp"),
    ("Transport", "TCP with RST", lambda p: p.transport == "tcp" and p.flagged("tcp.flags.reset")),
    ("Transport", "TCP with URG", lambda p: p.transport == "tcp" and p.flagged("tcp.flags.urg")),
    ("Transport", "TCP with ECE (ECN)", lambda p: p.transport == "tcp" and p.flagged("tcp.flags.ece")),
    ("Transport", "TCP with AE (accurate ECN)", lambda p: p.transport == "tcp" and p.flagged("tcp.flags.ae")),
    (
        "Transport",
        "TCP with data in the SYN (fast open)",
        lambda p: p.transport == "tcp" and p.flagged("tcp.flags.syn") and p.flagged("tcp.len"),
    ),
    (
        "Transport",
        "TCP with an MPTCP option",
        lambda p: p.transport == "tcp" and bool(p.first["tcp.options.mptcp.subtype"]),
    ),
    ("Transport", "TCP retransmissions", lambda p: p.flagged("tcp.analysis.retransmission")),
    ("Transport", "TCP zero window", lambda p: p.flagged("tcp.analysis.zero_window")),
    ("Transport", "UDP", lambda p: p.transport == "udp"),
    ("Transport", "UDP without checksum", lambda p: p.transport == "udp" and int(p.first["udp.checksum"], 16) == 0),
    ("Transport", "UDP-Lite", lambda p: p.transport == "udplite"),
    ("Transport", "SCTP", lambda p: p.transport == "sctp"),
    ("Transport", "... of these over IPv6", lambda p: p.transport == "sctp" and p.v6),
    ("Transport", "ICMP", lambda p: p.transport == "icmp"),
    ("Transport", "ICMPv6", lambda p: p.transport == "icmpv6"),
    ("Transport", "... of these MLD", lambda p: p.first["icmpv6.type"] in ("130", "131", "132", "143")),
    ("Transport", "IGMP", lambda p: p.transport == "igmp"),
    ("Transport", "other protocols, or none", other_ip),
    ("Application", "DNS over UDP (port 53)", lambda p: p.on("udp", 53)),
    ("Application", "DNS over TCP (port 53)", lambda p: p.on("tcp", 53)),
    ("Application", "DHCP (UDP ports 67, 68)", lambda p: p.on("udp", 67, 68)),
    ("Application", "HTTP (TCP port 80)", lambda p: p.on("tcp", 80)),
    ("Application", "TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2 (TCP port 443)", lambda p: p.on("tcp", 443)),
    ("Application", "QUIC, HTTP/3 (UDP port 443)", lambda p: p.on("udp", 443)),
    ("Application", "SSH and SFTP (TCP port 22)", lambda p: p.on("tcp", 22)),
    ("Application", "Redis (TCP port 6379)", lambda p: p.on("tcp", 6379)),
    ("Application", "multicast and broadcast UDP (port 7005)", lambda p: p.on("udp", 7005)),
]


def plain_file(path, folder):
    """The capture itself, or its decompressed copy in the folder: the libpcap of Debian 12 reads no zstd."""
    if path.suffix != ".zst":
        return path
    plain = pathlib.Path(folder) / path.stem
    subprocess.run(["zstd", "-q", "-f", "-d", "-o", plain, path], check=True)
    return plain


def read_packets(plain):
    """Every packet of the capture as tshark sees it; tshark's complaint about the file ends the program."""
    command = ["tshark", "-n", "-r", str(plain), "-T", "fields", "-E", "occurrence=a", "-E", "separator=/t"]
    for preference in PREFERENCES:
        command += ["-o", preference]
    for field in FIELDS:
        command += ["-e", field]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in run.stderr.splitlines() if line and not line.startswith("Running as user")]
    if run.returncode or complaints:
        raise SystemExit(f"count-captures: tshark cannot read {plain}: {' '.join(complaints)}")
    return [Packet(line) for line in run.stdout.splitlines()]


def findings(packets, every_row):
    """What is wrong with the packets: one sentence each."""
    for number, packet in enumerate(packets, start=1):
        for layer in CHECKSUMS:
            if packet.has_bad_checksum(layer):
                yield f"packet {number}: wrong {layer} checksum"
        if packet.flagged("_ws.malformed"):
            yield f"packet {number}: malformed"
        if packet.bytes > FRAME_BYTES_MAX:
            yield f"packet {number}: {packet.bytes} bytes, at most {FRAME_BYTES_MAX} expected: is an offload on?"
        for side in ("eth.src", "eth.dst"):
            for mac in packet.all[side].split(","):
                if not mac.startswith(MACS_ALLOWED):
                    yield f"packet {number}: MAC address {mac} is not one of the recorder's"
        for name in ("ip.src", "ip.dst", "ipv6.src", "ipv6.dst"):
            for address in filter(None, packet.all[name].split(",")):
                parsed = ipaddress.ip_address(address)
                if not any(parsed in net for net in ADDRESSES_ALLOWED if net.version == parsed.version):
                    yield f"packet {number}: address {address} is not one for documentation"
    if every_row:
        for _, name, belongs in ROWS:
            if not any(belongs(packet) for packet in packets):
                yield f"no packet of the kind: {name}"


def table(counted):
    """The Markdown table of one or more captures: a pair of columns (packets, flows) each."""
    names = " | ".join(f"{name}: packets | flows" for name in counted)
    lines = [f"| layer | what | {names} |", "|---|---|" + "--:|--:|" * len(counted)]
    for layer, what, belongs in ROWS:
        cells = []
        for packets in counted.values():
            chosen = [packet for packet in packets if belongs(packet)]
            flows = {packet.flow for packet in chosen if packet.flow}
            cells += [f"{len(chosen):,}", f"{len(flows):,}" if flows else ""]
        lines.append(f"| {layer} | {what} | {' | '.join(cells)} |")
    cells = []
    for packets in counted.values():
        cells += [f"{len(packets):,}", f"{len({p.flow for p in packets if p.flow}):,}"]
    lines.append(f"| | all | {' | '.join(cells)} |")
    return "\n".join(lines)


def totals(path, plain, packets):
    """The Markdown row of one file: packets, bytes, sizes and sums."""
    sizes = collections.Counter(packet.bytes for packet in packets)
    bytes_all = sum(size * count for size, count in sizes.items())
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, plain)]
    committed = f"{path.stat().st_size:,}"
    inside = f"{plain.stat().st_size:,}" if path != plain else "the same"
    digest_inside = f"`{digests[1]}`" if path != plain else "the same"
    return (
        f"| `{path.name}` | {len(packets):,} | {bytes_all:,} | {min(sizes)} to {max(sizes)} | {committed} | "
        f"`{digests[0]}` | {inside} | {digest_inside} |"
    )


def write_readme(readme, versions, files, files_of_same_frames):
    """Replace the generated part of the README."""
    begin, end = "<!-- generated: begin -->", "<!-- generated: end -->"
    text = readme.read_text()
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"count-captures: {readme} needs one line {begin} and, after it, one line {end}")
    rows, counted = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for path in [*files, *files_of_same_frames]:
            plain = plain_file(path, folder)
            packets = read_packets(plain)
            rows.append(totals(path, plain, packets))
            if path in files:
                counted[path.name.removesuffix(".zst")] = packets
    head, _, rest = text.partition(begin)
    tail = rest.partition(end)[2]
    made = [
        "| file | packets | bytes of frames | frame bytes | file bytes | sha256 | decompressed bytes | sha256 |",
        "|---|--:|--:|---|--:|---|--:|---|",
        *rows,
        "",
        table(counted),
        "",
        "Recorded with:",
        "",
        *(f"- {line}" for line in versions.read_text().splitlines()),
    ]
    readme.write_text(head + begin + "\n\n" + "\n".join(made) + "\n\n" + end + tail)


def main():
    """Read the command line and run one verb."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = arguments.add_subparsers(dest="verb", required=True)
    check = verbs.add_parser("check", help="fail with every finding about the capture")
    check.add_argument("file", type=pathlib.Path)
    check.add_argument("--every-row", action="store_true", help="also demand every kind of packet of the table")
    readme = verbs.add_parser("readme", help="write totals and table into the README")
    readme.add_argument("readme", type=pathlib.Path)
    readme.add_argument("versions", type=pathlib.Path)
    readme.add_argument("file", type=pathlib.Path, nargs="+")
    readme.add_argument(
        "--same-frames", type=pathlib.Path, action="append", default=[], help="a file for the totals but not the table"
    )
    options = arguments.parse_args()
    for program, package in (("tshark", "tshark"), ("zstd", "zstd")):
        if not shutil.which(program):
            raise SystemExit(f"count-captures: {program} is missing: apt-get install {package}")
    if options.verb == "readme":
        write_readme(options.readme, options.versions, options.file, options.same_frames)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = list(findings(read_packets(plain_file(options.file, folder)), options.every_row))
    for sentence in found[:20]:
        print(f"{options.file.name}: {sentence}")
    if found:
        raise SystemExit(f"count-captures: {options.file.name}: {len(found)} findings")


if __name__ == "__main__":
    main()
