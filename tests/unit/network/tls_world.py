"""The client's end of TLS, whose bytes a test moves as it likes."""

from __future__ import annotations

import ssl

from network_world import Client, NetworkWorld

from ottla.config.ssl_config import ListenerSslSettings, SslSettings
from ottla.network.tls_context import ListenerTls, client_context


def listening(certificates, **settings) -> ListenerTls:
    """What a listener has."""
    given = {"ssl_keystore_location": certificates.server} | settings
    return ListenerTls(ListenerSslSettings.parse(**given))


def trusting(certificates, **settings) -> ssl.SSLContext:
    """What a client has that trusts the authority of these certificates."""
    return client_context(
        SslSettings.parse(**{"ssl_truststore_location": certificates.ca} | settings)
    )


def agree(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"):
    """Have the two shake hands in memory; returns both ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return ends


class TlsEnd:
    """One side of TLS in memory: `outbox` is what it wants to send."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.inbox = bytearray()
        self.has_ended = False
        self.is_agreed = False
        self.step(b"")

    @property
    def outbox(self) -> bytes:
        return self._out.read()

    def write(self, data: bytes) -> bytes:
        """The records that carry the data."""
        self.tls.write(data)
        return self.outbox

    def step(self, encrypted: bytes) -> None:
        """Take bytes of the peer in."""
        if encrypted:
            self._in.write(encrypted)
        try:
            if not self.is_agreed:
                self.tls.do_handshake()
                self.is_agreed = True
            while data := self.tls.read(1 << 20):
                self.inbox += data
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # in place of b"", after a goodbye of our own
            self.has_ended = True


class TlsClient:
    """A client of a processor in a test's world."""

    def __init__(self, world: NetworkWorld, port: int, context: ssl.SSLContext) -> None:
        self.world = world
        self.end = TlsEnd(context)
        self.socket: Client = world.connect(port)

    def shake_hands(self) -> TlsClient:
        """Send and receive until both agree."""

        def is_agreed() -> bool:
            self.pump()
            return self.end.is_agreed

        self.world.until(is_agreed)
        self.pump()
        return self

    def pump(self) -> None:
        """Send what waits, and take in what has come."""
        self.world.send(self.socket, self.end.outbox)
        self.end.step(self.socket.take())

    def send(self, data: bytes) -> None:
        self.world.send(self.socket, self.end.write(data))

    def receive(self, count: int) -> bytes:
        """Exactly `count` bytes."""

        def is_enough() -> bool:
            self.pump()
            return len(self.end.inbox) >= count or self.socket.closed_by_peer

        self.world.until(is_enough)
        received = bytes(self.end.inbox[:count])
        assert len(received) == count, f"only {len(received)} bytes of {count} came"
        del self.end.inbox[:count]
        return received
