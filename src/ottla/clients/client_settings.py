"""How the clients take their settings: addresses first, then a mapping, then keywords."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

from ottla.config.client_config import ClientConfig
from ottla.config.config_def import dotted
from ottla.runtime import Runtime
from ottla.runtime.io_thread import LONGEST_WAIT_MS
from ottla.runtime.timing import Backoff

Servers: TypeAlias = str | Iterable[str] | Mapping[str, Any] | None


def merge_settings(
    bootstrap_servers: Servers, settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """All settings under Kafka's dotted keys; keywords win over the mapping.

    The addresses may be left out where the mapping has them, and the mapping may come first.
    """
    merged: dict[str, Any] = {}
    if isinstance(bootstrap_servers, Mapping):
        merged.update(bootstrap_servers)
    elif bootstrap_servers is not None:
        merged["bootstrap.servers"] = bootstrap_servers
    return merged | dotted(settings, keywords)


def limit_in_ms(timeout_ms: float) -> int:
    """A caller's limit in whole ms, which may come with a fraction, or as infinity."""
    return math.ceil(min(timeout_ms, LONGEST_WAIT_MS))


def retry_backoff(config: ClientConfig, runtime: Runtime) -> Backoff:
    """The pauses between the tries of a client's requests: those of retry.backoff.ms."""
    return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, runtime.random.random)


class ClosedOnExit(ABC):
    """A client that `with` closes, however the block ends; exceptions are not suppressed."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release everything that the client holds. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
