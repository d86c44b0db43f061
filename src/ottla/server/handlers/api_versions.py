"""ApiVersions (18), v0-4: which APIs this broker serves, in which versions.

Version notes: v3 flexible, names the client's software, carries features (KIP-511, KIP-584); its
response header stays v0, so that a client that asked for too much can still read the answer · v4
can read features whose lowest level is 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.server.apis import Handler
from ottla.server.features import SUPPORTED, Features

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4


class ApiVersionsHandler:
    """Answers from the table of registered APIs, and with the features that are in force."""

    def __init__(
        self, supported: Callable[[], list[tuple[int, int, int]]], features: Features
    ) -> None:
        self.supported = supported
        self.features = features

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.API_VERSIONS: self.handle_api_versions}

    def handle_api_versions(
        self, context: RequestContext, body: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        if context.api_version >= FIRST_VERSION_WITH_SOFTWARE and not (
            SOFTWARE_NAME.fullmatch(body.client_software_name)
            and SOFTWARE_NAME.fullmatch(body.client_software_version)
        ):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, low, high in self.supported()
            ],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED.items()
                if low or context.api_version >= FIRST_VERSION_WITH_LEVEL_ZERO
            ],
            finalized_features_epoch=self.features.epoch,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self.features.finalized.items()
            ],
        )
