"""ApiVersions (18), v0-4: which APIs this broker serves, in which versions.

Version notes: v3 flexible, names the client's software, carries features (KIP-511, KIP-584); its
response header stays v0, so that a client that asked for too much can still read the answer · v4
can read features whose lowest level is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import (
    FIRST_VERSION_WITH_DIRECTION,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FeatureUpdateKey,
    FinalizedFeatureKey,
    SupportedFeatureKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.server.apis import Handler
from ottla.server.features import SUPPORTED, Features, FeatureUpdate

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
        if not body.names_software(context.api_version):
            return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        context.connection.software = (body.client_software_name, body.client_software_version)
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


# UpdateFeatures (57), v0-2: puts levels of features in force (KIP-584).
#
# Behaviour: all changes are made or none; what stands against them is the error of the whole
# request in every version, as in Kafka 4.
#
# Version notes: v0 downgrades are allowed or not · v1 the direction of each change is named, and a
# request may only be validated (KIP-778) · v2 no results of single features.


FIRST_VERSION_WITHOUT_RESULTS = 2


class FeaturesHandler:
    """Lets administrators change what is in force in the cluster."""

    def __init__(self, features: Features) -> None:
        self.features = features

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.UPDATE_FEATURES: self.handle_update_features}

    async def handle_update_features(
        self, context: RequestContext, body: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        version = context.api_version
        error: KafkaError | None = None
        try:
            updates = {key.feature: update_of(key, version) for key in body.feature_updates}
            if not updates:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "no feature is named")
            await self.features.update(updates, validate_only=body.validate_only)
        except KafkaError as refusal:
            error = refusal
        code = error.error if error else ErrorCode.NONE
        message = error.message if error else None
        if error or version >= FIRST_VERSION_WITHOUT_RESULTS:
            return UpdateFeaturesResponse(error_code=code, error_message=message)
        return UpdateFeaturesResponse(
            results=[UpdatableFeatureResult(feature=key.feature) for key in body.feature_updates]
        )


def update_of(key: FeatureUpdateKey, api_version: int) -> FeatureUpdate:
    """What is wanted of a feature, whichever way the request says it."""
    number = key.upgrade_type
    if api_version < FIRST_VERSION_WITH_DIRECTION:
        number = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    try:
        return FeatureUpdate(key.max_version_level, UpgradeType(number))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{key.feature}: {number} is no type of upgrade"
        ) from None
