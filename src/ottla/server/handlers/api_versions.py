"""ApiVersions (18), v0-4: which APIs this broker serves, in which versions.

Version notes: v3 flexible, names the client's software, carries features (KIP-511, KIP-584); its
response header stays v0, so that a client that asked for too much can still read the answer · v4
can read features whose lowest level is 0.

Features (UpdateFeatures, 57): the levels that this broker can work at, and those in force in the
cluster. The registry has the truth (/feature); its version is the epoch by which clients know newer
levels from older ones. All changes of a request are made at once, or none is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.protocol.features import (
    FIRST_VERSION_WITH_DIRECTION,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryFailedError,
    Watch,
)
from ottla.registry.znodes import FEATURE, decode_features, encode_features
from ottla.runtime.scheduler import pause
from ottla.structs import TRANSACTION_VERSION, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.network.request_context import RequestContext
    from ottla.runtime import Runtime
    from ottla.server.api import Handler

logger = logging.getLogger(__name__)

NO_FEATURES_EPOCH: Final = -1


class LevelRange(NamedTuple):
    """The levels of a feature that a broker can work at; at level 0 it is as if there were none."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, LevelRange]] = {TRANSACTION_VERSION: LevelRange(0, 2)}


class FeatureUpdate(NamedTuple):
    """The level wanted for a feature, and the direction in which it may change."""

    level: int
    direction: UpgradeType


class Features:
    """The levels in force, as read when the registry last said that they have changed."""

    def __init__(self, runtime: Runtime, registry: Registry) -> None:
        self.finalized: dict[str, int] = {}
        self.epoch = NO_FEATURES_EPOCH
        self._runtime = runtime
        self._registry = registry
        self._watch: Watch | None = None

    async def start(self) -> None:
        """Read the levels, and from here on every change of them."""
        self._watch = self._registry.watch_data(FEATURE, self._on_change)
        await self._read()

    def stop(self) -> None:
        """Read no more changes."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        """Make the changes; KafkaError, and nothing is changed, if one of them cannot be made."""
        await self._read()
        levels = dict(self.finalized)
        for name, update in updates.items():
            check_update(name, update, levels.get(name, 0))
            levels[name] = update.level
            if update.level < 1:
                del levels[name]
        if validate_only:
            return
        data = encode_features(levels)
        try:
            if self.epoch == NO_FEATURES_EPOCH:
                await self._registry.create(FEATURE, data)
            else:
                await self._registry.set(FEATURE, data, self.epoch)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            raise KafkaError(
                ErrorCode.FEATURE_UPDATE_FAILED, "the features were changed by somebody else"
            ) from error
        await self._read()

    def _on_change(self) -> None:
        self._runtime.scheduler.spawn(self._follow(), "features")

    async def _follow(self) -> None:
        """Read the levels until that succeeds: the change is not notified again."""
        while self._watch is not None:
            try:
                await self._read()
                return
            except RegistryFailedError as error:
                logger.info("features are read again in a moment: %s", error)
                await pause(self._runtime.scheduler, REGISTRY_RETRY_MS)
            except KafkaError as error:
                logger.error("the features in force stay as they were: %s", error)
                return

    async def _read(self) -> None:
        try:
            data, stat = await self._registry.get(FEATURE)
        except NoNodeError:
            return  # no feature was ever put in force
        if stat.version <= self.epoch:
            return
        self.finalized, self.epoch = decode_features(data), stat.version
        logger.info("features in force: %s (epoch %d)", self.finalized, self.epoch)


def check_update(name: str, update: FeatureUpdate, present: int) -> None:
    """Whether a feature may go from its present level to the new one."""
    supported = SUPPORTED.get(name)
    if supported is None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {name}")
    wanted = max(0, update.level)
    if not supported.lowest <= wanted <= supported.highest:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name}={update.level}: the levels are {supported.lowest} to {supported.highest}",
        )
    is_upgrade = update.direction is UpgradeType.UPGRADE
    if wanted < present and is_upgrade:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name}={update.level}: it is at level {present}, so that this is a downgrade",
        )
    if wanted > present and not is_upgrade:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name}={update.level}: it is at level {present}, so that this is an upgrade",
        )


FIRST_VERSION_WITH_LEVEL_ZERO = 4
MAX_KEPT = 256
"""Letters of what a client calls its software, as long as it is connected, also before a login."""


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
        name, version = body.client_software_name, body.client_software_version
        context.connection.software = name[:MAX_KEPT], version[:MAX_KEPT]
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


FIRST_VERSION_WITHOUT_RESULTS = 2


class FeaturesHandler:
    """Lets administrators change the levels in force in the cluster.

    Behaviour: all changes are made or none; an obstacle to one is the error of the whole request in
    every version, as in Kafka 4.

    Version notes: v0 downgrades are allowed or not · v1 the direction of each change is named, and
    a request may only be validated (KIP-778) · v2 no results of single features.
    """

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
    """The wanted level of a feature, whichever way the request says it."""
    number = key.upgrade_type
    if api_version < FIRST_VERSION_WITH_DIRECTION:
        number = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    try:
        return FeatureUpdate(key.max_version_level, UpgradeType(number))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{key.feature}: {number} is no type of upgrade"
        ) from None
