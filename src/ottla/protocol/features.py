"""UpdateFeatures (57): the levels at which the features of a cluster work (KIP-584)."""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, String, field

FIRST_VERSION_WITH_DIRECTION = 1


class UpgradeType(IntEnum):
    """The direction in which a level may change; the last one allows a lossy downgrade."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdateKey(Struct):
    """A feature and its new level; below 1 the feature is out of force."""

    feature: str = field(String)
    max_version_level: int = field(Int16)
    allow_downgrade: bool = field(Boolean, versions="0")
    upgrade_type: int = field(Int8, versions="1+", default=1)


class UpdateFeaturesRequest(Request, api_key=57, flexible="0+"):
    """Change all of the features or none. v1 direction, may only be validated (KIP-778)."""

    timeout_ms: int = field(Int32, default=60000)
    feature_updates: list[FeatureUpdateKey] = field(Array(FeatureUpdateKey))
    validate_only: bool = field(Boolean, versions="1+")


class UpdatableFeatureResult(Struct):
    """Whether the level of one feature has changed (v0-1)."""

    feature: str = field(String)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")


class UpdateFeaturesResponse(Response, api_key=57, flexible="0+"):
    """One result for each feature. v2 one for all of them."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    results: list[UpdatableFeatureResult] = field(
        Array(UpdatableFeatureResult), versions="0-1", ignorable=True
    )
