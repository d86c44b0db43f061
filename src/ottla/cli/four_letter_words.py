"""ZooKeeper's four-letter words: a connection, a word, a page of text."""

from __future__ import annotations

import socket
from typing import Final

WORDS: Final = (
    "ruok",
    "stat",
    "srvr",
    "mntr",
    "conf",
    "cons",
    "envi",
    "isro",
    "dirs",
    "dump",
    "wchs",
)
ANSWER_TIMEOUT_S: Final = 5.0
PIECE_BYTES: Final = 1 << 16


def ask(host: str, port: int, word: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """What the server at this address says to the word; OSError where it does not answer."""
    pieces = []
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        while piece := connection.recv(PIECE_BYTES):
            pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")
