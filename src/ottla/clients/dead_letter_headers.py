"""The headers by which a dead letter says why its record failed, and where that was (KIP-298).

They are those of Kafka Connect; `ottla connect redrive` sends such records back.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.record.consumer_record import ConsumerRecord

REDRIVE_GROUP: Final = "connect-redrive-"
"""The group that remembers the letters of a queue that were sent back is this and its name."""
LARGEST_LETTER: Final = 16 << 20
"""A letter is larger than its record: the broker says whether its topic has room."""
HEADER_PREFIX: Final = "__connect.errors."
SHORT_CHARACTERS: Final = 200
"""So much of a message is in a letter that was too large for its topic."""


class FailedStep(NamedTuple):
    """Where a record failed: the reader by its name and number, the step, the code that ran."""

    name: str
    number: int
    stage: str
    executing: str


def letter_headers(
    record: ConsumerRecord, step: FailedStep, error: BaseException, *, is_short: bool
) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without those of an earlier failure, and what is known of this one.

    A short letter has no trace, and not all of the message.
    """
    return [
        *without_failure(record.headers),
        *failure_headers(record, step, error, is_short=is_short),
    ]


def without_failure(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """A record's own headers, without those of an earlier failure."""
    return [each for each in headers if not each[0].startswith(HEADER_PREFIX)]


def failure_headers(
    record: ConsumerRecord,
    step: FailedStep,
    error: BaseException,
    *,
    is_short: bool,
    hide: Callable[[str], str] = str,
) -> list[tuple[str, bytes]]:
    """What is known of a failure, as headers; `hide` takes secrets out of what its error says."""
    message = hide(text_of(error))
    context: Mapping[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": step.name,
        "task.id": step.number,
        "stage": step.stage,
        "class.name": step.executing,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": message[:SHORT_CHARACTERS] if is_short else message,
    }
    if not is_short:
        trace = "".join(traceback.format_exception(error))
        context = {**context, "exception.stacktrace": hide(trace)}
    return [
        (HEADER_PREFIX + key, str(value).encode("utf-8", "backslashreplace"))
        for key, value in context.items()
    ]


def text_of(error: BaseException) -> str:
    """The message of an error, also of one that cannot say it."""
    return _said(str, error) or type(error).__name__


def repr_of(error: BaseException) -> str:
    """An error as a log has it, also one that cannot say it."""
    return _said(repr, error) or type(error).__name__


def _said(how: Callable[[object], str], error: BaseException) -> str:
    try:
        return how(error)
    except BaseException:  # it is code of a handler, or of a plug-in, and would end the loop
        return ""
