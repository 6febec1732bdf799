"""TLS of a listener and of its clients, with certificates of one authority, and a client that holds single records."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache

from odradek.broker.network.listener_tls import ListenerTls
from odradek.broker.security.cipher_suites import negotiable
from odradek.broker.security.key_stores import Store, load_key, load_trusted
from odradek.broker.security.principal_mapping import PrincipalMapping
from odradek.broker.security.tls import client_context, server_context
from tests.broker.network.echo_server import BothSides
from tests.zookeeper.certificates import Authority, Signed

HOST = "127.0.0.1"
HEADER_BYTES = 5
"""Of a record: type, version, length."""
APPLICATION_DATA, ALERT = 23, 21


@cache
def authority() -> Authority:
    return Authority()


@cache
def server_key() -> Signed:
    return authority().sign("broker", HOST)


def both_sides(
    client_auth: str = "none",
    client_key: Signed | None = None,
    *,
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
    rules: str = "DEFAULT",
    trusted: Authority | None = None,
) -> BothSides:
    """`trusted`: whose certificates the listener accepts of clients."""
    allowed = negotiable(versions, None)
    listener = server_context(allowed, client_auth)
    load_key(listener, Store("broker.pem", server_key().pem))
    load_trusted(listener, Store("trusted.pem", (trusted or authority()).pem))
    client = client_context(allowed, checks_host_name=True)
    load_trusted(client, Store("trusted.pem", authority().pem))
    if client_key is not None:
        load_key(client, Store("client.pem", client_key.pem))
    return BothSides(ListenerTls(listener, PrincipalMapping(rules)), client)


class RecordClient:
    """A client whose TLS is between two buffers: the test decides what reaches the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self.reader = reader
        self.writer = writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_hostname=HOST)
        self.records: list[tuple[int, int]] = []
        """Type and length of every record received."""

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext) -> RecordClient:
        return cls(*await asyncio.open_connection(HOST, port), context)

    async def shake_hands(self, piece_bytes: int = 1 << 16) -> None:
        """Sends `piece_bytes` at a time."""
        while True:
            try:
                self.session.do_handshake()
            except ssl.SSLWantReadError:
                await self.send_records(piece_bytes)
                await self.receive_record()
            else:
                await self.send_records(piece_bytes)
                return

    async def send_records(self, piece_bytes: int = 1 << 16) -> None:
        data = self.outgoing.read()
        for start in range(0, len(data), piece_bytes):
            self.writer.write(data[start : start + piece_bytes])
            await self.writer.drain()
            await asyncio.sleep(0)

    async def send(self, data: bytes, piece_bytes: int = 1 << 16) -> None:
        self.session.write(data)
        await self.send_records(piece_bytes)

    async def receive_record(self) -> None:
        """Raises IncompleteReadError at the end."""
        header = await self.reader.readexactly(HEADER_BYTES)
        length = int.from_bytes(header[3:], "big")
        self.records.append((header[0], length))
        self.incoming.write(header + await self.reader.readexactly(length))

    async def read(self, count: int) -> bytes:
        """Returns exactly so many bytes."""
        received = bytearray()
        while len(received) < count:
            try:
                received += self.session.read(count - len(received))
            except ssl.SSLWantReadError:
                await self.receive_record()
        return bytes(received)

    def close(self) -> None:
        self.writer.close()
