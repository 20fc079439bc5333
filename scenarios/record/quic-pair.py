#!/usr/bin/env python3
"""HTTP/3 over QUIC between two namespaces, with aioquic (PyPI), since Debian 12 ships no QUIC program.

`serve` answers GET /BYTES with that many bytes on UDP port 443 until it is ended; `get` fetches each path of the
command line over one connection and fails if a body has another length than asked for.  Certificates are not checked:
they are thrown away with the namespaces.  It is no HTTP/3 server for any other purpose.
"""

import argparse
import asyncio
import ssl

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

BODY_BYTES_MAX = 1 << 20
PORT = 443


class Http3(QuicConnectionProtocol):
    """One connection with HTTP/3 on it from its first event: a later start would miss the peer's header table."""

    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if self.http is not None:
            for received in self.http.handle_event(event):
                self.http_event_received(received)


class Server(Http3):
    """One connection of the server: a body of the asked length per request."""

    def http_event_received(self, event):
        """Answer a request."""
        if isinstance(event, HeadersReceived):
            path = dict(event.headers)[b":path"]
            body = bytes(i % 251 for i in range(min(int(path[1:]), BODY_BYTES_MAX)))
            self.http.send_headers(event.stream_id, [(b":status", b"200"), (b"server", b"aioquic")])
            self.http.send_data(event.stream_id, body, end_stream=True)
            self.transmit()


class Client(Http3):
    """One connection of the client: requests one after another, counting the bytes of each body."""

    body_bytes = 0
    done = None

    def http_event_received(self, event):
        """Count a part of the body, and wake the caller at its end."""
        if isinstance(event, DataReceived):
            self.body_bytes += len(event.data)
            if event.stream_ended:
                self.done.set_result(self.body_bytes)

    async def get(self, authority, path):
        """Fetch one path and return the length of its body in bytes."""
        self.body_bytes = 0
        self.done = asyncio.get_running_loop().create_future()
        stream = self._quic.get_next_available_stream_id()
        headers = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
        self.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in headers.items()], end_stream=True)
        self.transmit()
        return await asyncio.wait_for(self.done, timeout=10)


async def run_server(options):
    """Serve until ended."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(options.certificate, options.key)
    await serve(options.address, PORT, configuration=configuration, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def run_client(options):
    """Fetch every path over one connection."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    configuration.server_name = "www.example.net"
    async with connect(options.address, PORT, configuration=configuration, create_protocol=Client) as client:
        for path in options.path:
            length = await client.get("www.example.net", path)
            if length != int(path[1:]):
                raise SystemExit(f"quic-pair: asked for {path[1:]} bytes, got {length}")


def main():
    """Read the command line and run one side."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sides = arguments.add_subparsers(dest="side", required=True)
    server = sides.add_parser("serve")
    server.add_argument("address")
    server.add_argument("certificate")
    server.add_argument("key")
    client = sides.add_parser("get")
    client.add_argument("address")
    client.add_argument("path", nargs="+", help="/BYTES")
    options = arguments.parse_args()
    asyncio.run(run_server(options) if options.side == "serve" else run_client(options))


if __name__ == "__main__":
    main()
