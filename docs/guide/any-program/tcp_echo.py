"""Sends back what comes over TCP. Usage: tcp_echo.py ADDRESS PORT"""

import selectors
import socket
import sys

ears = selectors.DefaultSelector()


def accept(listener):
    connection, _ = listener.accept()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ears.register(connection, selectors.EVENT_READ, answer)


def answer(connection):
    try:
        data = connection.recv(65536)
        if data:
            # A sketch: a peer that sends much and reads nothing stops this server for all.
            connection.setblocking(True)
            connection.sendall(data)
            connection.setblocking(False)
            return
    except OSError:
        pass
    ears.unregister(connection)
    connection.close()


listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=1024)
ears.register(listener, selectors.EVENT_READ, accept)
while True:
    for key, _ in ears.select():
        key.data(key.fileobj)
