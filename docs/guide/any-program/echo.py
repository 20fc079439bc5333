"""A UDP server that sends every datagram back: an arm of `laneway race udp-echo`.

    laneway race udp-echo --arm 'python3 docs/guide/any-program/echo.py {address} {port}'
"""

import socket
import sys

address, port = sys.argv[1], int(sys.argv[2])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, port))
buffer = bytearray(65_535)
while True:
    length, peer = server.recvfrom_into(buffer)
    server.sendto(memoryview(buffer)[:length], peer)
