"""A UDP server that only receives, and prints how much: an arm of an app that only receives.

    laneway race lanes --variant count-64 --arm 'python3 docs/guide/any-program/count.py {address} {port}'
"""

import socket
import sys
import time

address, port = sys.argv[1], int(sys.argv[2])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, port))
server.settimeout(0.05)
buffer = bytearray(65_535)
received, due = 0, 0.0
while True:
    if time.monotonic() >= due:
        # Since the start, a line of its own, and flushed: what goes into a pipe is held back.
        print(f"received={received}", flush=True)
        due = time.monotonic() + 0.05
    try:
        server.recv_into(buffer)
        received += 1
    except TimeoutError:
        pass
