"""ApiVersions (18): the first thing a client asks, so that both sides speak the same versions."""

from __future__ import annotations

import re
from typing import Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int16, Int32, Int64, String, field

FIRST_VERSION_WITH_SOFTWARE: Final = 3
SOFTWARE_NAME: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


class ApiVersionsRequest(Request, api_key=18, flexible="3+"):
    """Ask for the versions of every API.

    v3 flexible, name and version of the client's software (KIP-511) · v4 can read a feature whose
    lowest version is 0.
    """

    client_software_name: str = field(String, versions="3+", ignorable=True)
    client_software_version: str = field(String, versions="3+", ignorable=True)

    def names_software(self, version: int) -> bool:
        """Whether name and version of the software are there, and spelled as KIP-511 wants it."""
        return version < FIRST_VERSION_WITH_SOFTWARE or bool(
            re.fullmatch(SOFTWARE_NAME, self.client_software_name)
            and re.fullmatch(SOFTWARE_NAME, self.client_software_version)
        )


class ApiVersion(Struct):
    """The versions of one API that the broker serves."""

    api_key: int = field(Int16)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


class SupportedFeatureKey(Struct):
    """A feature of the broker and the levels that it can work at (KIP-584)."""

    name: str = field(String)
    min_version: int = field(Int16)
    max_version: int = field(Int16)


class FinalizedFeatureKey(Struct):
    """A feature of the cluster and the levels that are in force (KIP-584)."""

    name: str = field(String)
    max_version_level: int = field(Int16)
    min_version_level: int = field(Int16)


class ApiVersionsResponse(Response, api_key=18, flexible="3+", answers_unknown_versions=True):
    """The APIs that the broker serves. An unknown version is answered in v0 (KIP-511).

    v1 throttle time · v3 flexible body, but never a flexible header; features (KIP-584).
    """

    error_code: int = field(Int16)
    api_keys: list[ApiVersion] = field(Array(ApiVersion))
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        Array(SupportedFeatureKey), versions="3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(Int64, versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        Array(FinalizedFeatureKey), versions="3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(Boolean, versions="3+", tag=3, ignorable=True)
