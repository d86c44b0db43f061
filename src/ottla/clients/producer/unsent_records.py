"""A word at the end of a program about records that its producers have taken and not delivered."""

from __future__ import annotations

import atexit
import logging
import os
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from ottla.clients.producer.record_accumulator import RecordAccumulator

logger = logging.getLogger(__name__)


class UnsentRecords:
    """The records of one producer, until it is closed; it says at the end that this was forgotten.

    A child of a fork is not: the records are its parent's.
    """

    def __init__(self, client_id: str, accumulator: RecordAccumulator) -> None:
        self._client_id = client_id
        self._accumulator = accumulator
        self._process = os.getpid()
        _OPEN.add(self)

    def forget(self) -> None:
        """The producer is closed: each record was delivered, or has failed."""
        _OPEN.discard(self)

    def tell(self) -> None:
        """Log how many there are, if any."""
        count = self._accumulator.unfinished_count
        if count and self._process == os.getpid():
            logger.warning(
                "the program ends before %d records of the producer %s are delivered: flush or "
                "close it first",
                count,
                self._client_id,
            )


_OPEN: Final[WeakSet[UnsentRecords]] = WeakSet()


def tell_of_all() -> None:
    """Log it for each producer that is open."""
    for records in list(_OPEN):
        records.tell()


atexit.register(tell_of_all)
