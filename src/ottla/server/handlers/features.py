"""UpdateFeatures (57), v0-2: puts levels of features in force (KIP-584).

Behaviour: all changes are made or none; what stands against them is the error of the whole
request in every version, as in Kafka 4.

Version notes: v0 downgrades are allowed or not · v1 the direction of each change is named, and a
request may only be validated (KIP-778) · v2 no results of single features.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.server.apis import Handler
from ottla.server.features import Features, FeatureUpdate

FIRST_VERSION_WITH_DIRECTION = 1
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
