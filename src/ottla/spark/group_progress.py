"""Commits a stream's progress to a consumer group, so that Kafka's tools show its lag.

The offsets are for monitoring only: the query itself uses its checkpoint. So a group that cannot
be written to causes a warning, and no error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.spark import connections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.offsets import Offsets

logger = logging.getLogger(__name__)


class GroupProgress:
    """The offsets of a group without members; does nothing where there is no group."""

    def __init__(self, group_id: str | None, settings: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._settings = settings
        self._reported: Offsets | None = None

    def report(self, offsets: Offsets) -> None:
        """Commit that everything before these offsets is processed; each change is sent once."""
        if self._group_id is None or not offsets or offsets == self._reported:
            return
        self._reported = offsets
        try:
            connections.admin(self._settings).alter_group_offsets(self._group_id, offsets)
        except KafkaError as error:
            logger.warning("group %s is not told of the progress: %s", self._group_id, error)
