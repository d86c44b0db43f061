"""/feature: the levels of features that are in force in the cluster, as Kafka keeps them there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ottla.errors import ErrorCode, KafkaError

FEATURE: Final = "/feature"
VERSION: Final = 2
ENABLED: Final = 1


def encode_features(levels: Mapping[str, int]) -> bytes:
    """Version 2: a level for each feature."""
    content = {"version": VERSION, "status": ENABLED, "features": dict(levels)}
    return json.dumps(content, separators=(",", ":")).encode()


def decode_features(data: bytes) -> dict[str, int]:
    """The levels of either version; version 1 has a lowest one beside each, which is not used."""
    try:
        features = json.loads(data)["features"]
        return {
            str(name): int(level["max_version_level"] if isinstance(level, dict) else level)
            for name, level in features.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KafkaError(
            ErrorCode.FEATURE_UPDATE_FAILED, f"{FEATURE} cannot be read: {data[:200]!r}"
        ) from error
