"""The foreign side of the comparison: NFStream 6.6.0's flows of a list of captures.

    python -I run_nfstream.py OUT < captures.json

Reads a JSON list of paths, writes one JSON object per capture to OUT: `columns` on the first line,
then `error` (null, or why NFStream cannot read the capture) and `flows`, a list of rows each.

One meter, no dissection, its default timeouts. Frame lengths are NFStream's own `bytes`; what its
other accounting modes would call bytes is summed beside them from the same per-packet fields, so
that one run yields all four. Tunnels over UDP stay closed (`decode_tunnels=False`): their outer
flows are then compared like any others.

It knows nothing of the other side and judges nothing.
"""

import json
import sys

from nfstream import NFPlugin, NFStreamer


class OtherBytes(NFPlugin):
    """Accounting modes 1 (IP), 2 (layer 4) and 3 (payload), per direction."""

    def on_init(self, packet, flow):
        flow.udps.by_mode = [0] * 6
        self.on_update(packet, flow)

    def on_update(self, packet, flow):
        sums = flow.udps.by_mode
        at = 3 if packet.direction else 0
        sums[at] += packet.ip_size
        sums[at + 1] += packet.transport_size
        sums[at + 2] += packet.payload_size


DIRECTIONS = ("bidirectional", "src2dst", "dst2src")
PER_DIRECTION = (
    "packets", "bytes", "first_seen_ms", "last_seen_ms", "duration_ms",
    "min_ps", "max_ps", "mean_ps", "stddev_ps",
    "min_piat_ms", "max_piat_ms", "mean_piat_ms", "stddev_piat_ms",
    "syn_packets", "cwr_packets", "ece_packets", "urg_packets",
    "ack_packets", "psh_packets", "rst_packets", "fin_packets",
)  # fmt: skip
COLUMNS = (
    "src_ip", "dst_ip", "src_port", "dst_port", "protocol", "ip_version", "vlan_id",
    "expiration_id", *(f"{d}_{name}" for d in DIRECTIONS for name in PER_DIRECTION),
)  # fmt: skip
BY_MODE = tuple(
    f"{d}_{name}" for d in DIRECTIONS[1:] for name in ("ip_bytes", "l4_bytes", "payload_bytes")
)


def flows(capture):
    streamer = NFStreamer(
        source=capture,
        decode_tunnels=False,
        idle_timeout=120,
        active_timeout=1800,
        accounting_mode=0,
        udps=OtherBytes(),
        n_dissections=0,
        statistical_analysis=True,
        splt_analysis=0,
        n_meters=1,
    )
    return [[getattr(flow, name) for name in COLUMNS] + flow.udps.by_mode for flow in streamer]


def main():
    captures = json.load(sys.stdin)
    # NFStream prints warnings to standard output, so results go to a file.
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        print(json.dumps({"columns": COLUMNS + BY_MODE}), file=out)
        for capture in captures:
            try:
                result = {"error": None, "flows": flows(capture)}
            except ValueError as error:
                result = {"error": str(error), "flows": []}
            print(json.dumps(result), file=out, flush=True)


if __name__ == "__main__":
    main()
