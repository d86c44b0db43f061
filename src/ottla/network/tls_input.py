"""The bytes of a peer on their way from the socket to OpenSSL: some records at a time.

OpenSSL works off all that it has been given before it returns, and a record without data is the
most work: a new key (KeyUpdate) has 27 bytes, and takes it a twentieth of a millisecond. So it gets
a bounded number of records, and the others of the same read wait here.
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
_MAJOR: Final = 3
NOTHING: Final = memoryview(b"")


class TlsInput:
    """The receiving side of one connection; `bio` is OpenSSL's end of it.

    Invariant: a header is handed on whole, and with it as much of its record as has come.
    """

    __slots__ = ("_held", "_receive", "_record_left", "bio", "received_bytes")

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self.bio = ssl.MemoryBIO()
        self.received_bytes = 0
        self._receive = receive
        self._held = NOTHING
        self._record_left = 0  # bytes of the record handed on last that have not come

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
        self._held = memoryview(bytes(data[end:])) if end < len(data) else NOTHING
        return True

    def _end_of_some(self, data: memoryview) -> int:
        """Where the records end that are handed on; the last may still be coming."""
        place, size = self._record_left, len(data)
        for _ in range(MAX_RECORDS):
            if place + HEAD_BYTES > size:
                break
            kind, version, length = _HEAD.unpack_from(data, place)
            # Bytes that are no TLS end the connection, once OpenSSL has seen them.
            place += HEAD_BYTES + (length if kind in _TYPES and version == _MAJOR else 0)
        self._record_left = max(0, place - size)
        return min(place, size)
