"""Features: what this broker can work at, and which levels are in force in the cluster (KIP-584).

The registry has the truth (/feature); its version is the epoch by which clients tell newer levels
from older ones. All changes of a request are made at once, or none is.

Wing: attaches to `broker`, for finalized feature levels (KIP-584); the core works without it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_versions import UpgradeType
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
from ottla.runtime import Runtime
from ottla.runtime.scheduler import pause
from ottla.structs import TRANSACTION_VERSION

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
