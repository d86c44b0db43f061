"""Where a dead letter comes from, by the headers that its sender has left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.letter_families import LetterOrigin
from ottla.console.decoding import beginning
from ottla.console.masks import HIDDEN_QUOTE, masks_of
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.console.masks import Mask

LONGEST_REASON: Final = 500


class Origin(NamedTuple):
    """The record that a dead letter is made of, and the reason in its sender's words."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def path(self) -> str:
        """The record's page."""
        return f"/t/{self.topic}/{self.partition}/{self.offset}"


def origin_of(headers: Sequence[tuple[str, bytes | None]]) -> Origin | None:
    """The origin that a record's headers name; None where it is no dead letter."""
    letter = LetterOrigin(headers)
    partition, offset = letter.partition, letter.offset
    if not letter.topic or partition is None or offset is None or min(partition, offset) < 0:
        return None
    return Origin(letter.topic, partition, offset, beginning(letter.message, LONGEST_REASON))


def hidden_reason(origin: Origin | None, masks: Iterable[Mask]) -> Origin | None:
    """The origin; without its reason, which may quote the record, where its topic is masked."""
    if origin is None or not origin.reason or not masks_of(masks, origin.topic):
        return origin
    return origin._replace(reason=HIDDEN_QUOTE)
