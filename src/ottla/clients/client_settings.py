"""How the clients take their settings: addresses first, then a mapping, then keywords."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from ottla.config.config_def import dotted

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
