"""The parts of an answer that were asked for: some servers leave parts out, or add others.

A part that is left out is an error of its own. It passes neither for done nor for nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

K = TypeVar("K")
V = TypeVar("V")


def left_out(subject: object = "this one") -> KafkaError:
    """The error of a subject that an answer should be about, and is not."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer leaves {subject} out")


def of_each(asked: Iterable[K], answers: Mapping[K, V | KafkaError]) -> dict[K, V | KafkaError]:
    """The answer about each subject that was asked about, and no other."""
    return {each: answers[each] if each in answers else left_out(each) for each in asked}


def only(answers: Iterable[V], subject: object) -> V:
    """The one answer there should be; an error where there is none, or another one with it."""
    first, *others = answers or (None,)
    if first is None:
        raise left_out(subject)
    if others:
        text = f"the answer has {len(others) + 1} entries about {subject} instead of one"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    return first
