#!/usr/bin/env python3
"""Memory that an idle connection takes: opens COUNT of them to a server, has each answer one PING, and reads VmRSS.

  docs/measurements/idle-connections.py COUNT PORT SERVER [ARGUMENT...]
  docs/measurements/idle-connections.py 10000 7101 laneway run kv --lane socket --listen 127.0.0.1:7101 --maxclients 10100
  docs/measurements/idle-connections.py 10000 7101 redis-server --port 7101 --maxclients 10100 --save '' --appendonly no

Client and server each need COUNT descriptors and a few more (`ulimit -n`). Socket buffers are the kernel's and not in it.
"""
import resource
import socket
import subprocess
import sys
import time


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def connected(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens at 127.0.0.1:{port}; look at the server's own words without this script")


def ping(connection):
    connection.sendall(b"*1\r\n$4\r\nPING\r\n")
    reply = connection.recv(64)
    if reply != b"+PONG\r\n":
        sys.exit(f"PING was answered with {reply!r}")


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    count, port, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # What the first ones make the server load is not theirs.
        connections = [connected(port) for _ in range(10)]
        for connection in connections:
            ping(connection)
        time.sleep(1)
        before = resident_bytes(server.pid)
        for _ in range(count):
            connections.append(connected(port))
            ping(connections[-1])
        time.sleep(2)
        after = resident_bytes(server.pid)
        each = (after - before) / count
        mib = [f"{resident / 2**20:.1f} MiB" for resident in (before, after)]
        print(f"{' '.join(command[:4])}: {mib[0]} before, {mib[1]} with {count} idle connections: {each:.0f} bytes each")
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
