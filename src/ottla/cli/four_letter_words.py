"""ZooKeeper's four-letter words, such as `ruok`, and the text that answers them."""

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
    """The server's answer to a four-letter word; raises OSError where there is none."""
    pieces = []
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        while piece := connection.recv(PIECE_BYTES):
            pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")
