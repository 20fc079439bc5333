#!/usr/bin/env python3
"""Copies every UDP datagram to some multicast groups to several outputs: a relay to race.

    relay.py INTERFACE GROUP[,GROUP...] PORT INTERFACE:PORT[,INTERFACE:PORT...]

Each copy goes to the group that its datagram was sent to, at the output's port, by the output's interface.
"""
import selectors
import socket
import struct
import sys

IP_MULTICAST_ALL = 49  # linux/in.h: datagrams of groups that others have joined, too


def membership(group, interface):
    """struct ip_mreqn"""
    return struct.pack("4s4si", socket.inet_aton(group), bytes(4), socket.if_nametoindex(interface))


def receiver(group, port, interface):
    receives = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receives.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    receives.setsockopt(socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
    receives.bind((group, port))
    receives.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership(group, interface))
    receives.setblocking(False)
    return receives


def sender(interface):
    sends = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership("0.0.0.0", interface))
    sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
    return sends


def main():
    interface, groups, port, outputs = sys.argv[1:]
    outputs = [output.rsplit(":", 1) for output in outputs.split(",")]
    senders = {name: sender(name) for name, _ in outputs}
    copies = [(senders[name], int(out)) for name, out in outputs]
    selector = selectors.DefaultSelector()
    for group in groups.split(","):
        selector.register(receiver(group, int(port), interface), selectors.EVENT_READ, group)
    while True:
        for ready, _ in selector.select():
            try:
                data = ready.fileobj.recv(65535)
            except BlockingIOError:
                continue
            for sends, out in copies:
                sends.sendto(data, (ready.data, out))


main()
