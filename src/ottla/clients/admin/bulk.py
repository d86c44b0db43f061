"""Calls about many things at once: everything is tried, then what failed is raised."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar, cast

from ottla.errors import KafkaError

Key = TypeVar("Key", bound=Hashable)
V = TypeVar("V")


class BulkError(KafkaError):
    """Some of a call failed: this is the error of the first one, and `results` has them all."""

    def __init__(self, cause: KafkaError, results: Mapping[Any, Any]) -> None:
        failed = sum(isinstance(result, KafkaError) for result in results.values())
        more = f" (and {failed - 1} more)" if failed > 1 else ""
        super().__init__(cause.error, cause.message + more)
        self.results = dict(results)


def checked(results: Mapping[Key, V | KafkaError]) -> dict[Key, V]:
    """The results, if none is an error; else BulkError."""
    for result in results.values():
        if isinstance(result, KafkaError):
            raise BulkError(result, results) from result
    return cast(dict[Key, V], dict(results))
