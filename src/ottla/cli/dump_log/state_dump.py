""".snapshot, .txnindex and leader-epoch-checkpoint files: a line per entry."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ottla.cli.dump_log.segment_file import base_offset
from ottla.cli.terminal import Terminal
from ottla.log.index_file import CorruptIndexError
from ottla.log.txn_index import VERSION, TransactionIndex
from ottla.runtime.local_disk import LocalDisk


def dump_transaction_index(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print the aborted transactions of a segment."""
    try:
        entries = TransactionIndex(LocalDisk(), str(path), base_offset(path)).entries()
    except CorruptIndexError as error:
        terminal.note(str(error))
        return False
    for aborted in entries:
        terminal.print(
            f"version: {VERSION} producerId: {aborted.producer_id} "
            f"firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
            f"lastStableOffset: {aborted.last_stable_offset}"
        )
    return True
