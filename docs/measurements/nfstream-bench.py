#!/usr/bin/env python3
"""CPU of NFStream 6.6.0 per packet over one capture, with its statistics on and off.

    python3 -I docs/measurements/nfstream-bench.py CAPTURE [REPEATS]

One meter, no dissection, no SPLT, tunnels closed, NFStream's default timeouts. CPU is user + system
time of this process and of the meter process it starts (NFStream joins it, so its time is in
RUSAGE_CHILDREN), over making the streamer and taking every flow; imports are not in it. Besides the
total, the meter's share alone is printed: what is left when the consumer's un-pickling of flows is
not held against NFStream.

The package reads CAPTURE through libpcap, so it must be pcap or pcapng, not compressed. Runs with
and without statistics alternate, so that a change of the machine's pace meets both.
"""

import gc
import resource
import sys
import time

from nfstream import NFStreamer


def cpu_s(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def run(capture, statistics):
    gc.collect()
    before = [cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)]
    start = time.monotonic()
    flows = packets = 0
    for flow in NFStreamer(
        source=capture,
        decode_tunnels=False,
        idle_timeout=120,
        active_timeout=1800,
        n_dissections=0,
        statistical_analysis=statistics,
        splt_analysis=0,
        n_meters=1,
    ):
        flows += 1
        packets += flow.bidirectional_packets
    wall_s = time.monotonic() - start
    after = [cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)]
    own_s, meter_s = (b - a for a, b in zip(before, after))
    return flows, packets, own_s, meter_s, wall_s


def main():
    capture = sys.argv[1]
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    print("statistics,flows,packets,cpu_ns_per_packet,meter_cpu_ns_per_packet,cpu_s,wall_s")
    for _ in range(repeats):
        for statistics in (True, False):
            flows, packets, own_s, meter_s, wall_s = run(capture, statistics)
            per_packet = 1e9 / max(packets, 1)
            print(
                f"{'on' if statistics else 'off'},{flows},{packets},"
                f"{(own_s + meter_s) * per_packet:.0f},{meter_s * per_packet:.0f},"
                f"{own_s + meter_s:.3f},{wall_s:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
