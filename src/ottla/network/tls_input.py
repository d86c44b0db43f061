"""The bytes of a peer on their way from the socket to OpenSSL: some records at a time.

OpenSSL works off all that it has been given before it returns, and a record without data is the
most work: a new key (KeyUpdate) has 27 bytes, and takes it a twentieth of a millisecond. So it gets
a bounded number of records, and the others of the same read wait here.

It keeps sessions of TLS 1.2 for clients without tickets, 20,000 of them for two hours, each with
all certificates that the client has shown: hundreds of kilobytes of who wants to fill the memory.
It forgets those of connections that end without a goodbye of either side. So it gets none.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable
from typing import Final

MAX_RECORDS: Final = 16
_HEAD: Final = struct.Struct(">BBxH")
"""Type, the version's first byte, and how many bytes follow."""
HEAD_BYTES: Final = _HEAD.size
_TYPES: Final = range(20, 25)
_CHANGE_CIPHER: Final = 20
_ALERT: Final = 21
_MAJOR: Final = 3
NOTHING: Final = memoryview(b"")


class TlsInput:
    """The receiving side of one connection; `bio` is OpenSSL's end of it.

    Invariant: a header is handed on whole, and with it as much of its record as has come.
    """

    __slots__ = (
        "_has_ended",
        "_held",
        "_is_secret",
        "_receive",
        "_record_left",
        "bio",
        "received_bytes",
    )

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self.bio = ssl.MemoryBIO()
        self.received_bytes = 0
        self._receive = receive
        self._held = NOTHING
        self._record_left = 0  # bytes of the record handed on last that have not come
        self._is_secret = False  # alerts are encrypted now: with TLS 1.3 they look like data
        self._has_ended = False

    @property
    def is_ahead(self) -> bool:
        """Whether the next bytes, or the end, have been taken from the socket already."""
        return bool(self.bio.pending or self.bio.eof or len(self._held) >= HEAD_BYTES)

    def pull(self, scratch: memoryview) -> bool:
        """Hand on the records that come next, or the end; False when there are none.

        The socket is read, into `scratch`, where none of the last read are left.
        """
        data = self._held
        if len(data) < HEAD_BYTES:
            try:
                count = self._receive(scratch)
            except BlockingIOError:
                return False
            if not count:
                self.bio.write_eof()
                return True
            self.received_bytes += count
            data = memoryview(bytes(data) + scratch[:count]) if data else scratch[:count]
        end = self._end_of_some(data)
        self.bio.write(data[:end])
        if self._has_ended:
            self.bio.write_eof()
        is_whole = self._has_ended or end == len(data)
        self._held = NOTHING if is_whole else memoryview(bytes(data[end:]))
        return True

    def _end_of_some(self, data: memoryview) -> int:
        """Where the records end that are handed on; the last may still be coming."""
        place, size = self._record_left, len(data)
        for _ in range(MAX_RECORDS):
            if place + HEAD_BYTES > size:
                break
            kind, version, length = _HEAD.unpack_from(data, place)
            if kind == _ALERT and self._is_secret:
                self._has_ended = True  # a goodbye, or an error of the client's
                break
            self._is_secret |= kind == _CHANGE_CIPHER
            # Bytes that are no TLS end the connection, once OpenSSL has seen them.
            place += HEAD_BYTES + (length if kind in _TYPES and version == _MAJOR else 0)
        self._record_left = max(0, place - size)
        return min(place, size)


def is_kept(tls: ssl.SSLObject) -> bool:
    """Whether OpenSSL keeps the session beyond its connection, unless it ends without a goodbye."""
    session = tls.session if tls.version() == "TLSv1.2" else None
    return session is not None and bool(session.id)
