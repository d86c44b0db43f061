"""The election of the controller: it owns /controller, in an epoch that no other broker has."""

from __future__ import annotations

import logging

from ottla.config.config_type import INT_MAX
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryError,
    Set,
    Stat,
)
from ottla.registry.znodes import decode_controller, decode_epoch, encode_controller, encode_epoch
from ottla.structs import NamedTuple

logger = logging.getLogger(__name__)


class ControllerEpoch(NamedTuple):
    """A controller's epoch, and the version of /controller_epoch that every write checks."""

    epoch: int
    version: int


class ControllerMovedError(KafkaError):
    """Another controller was elected since: nothing of the write was done."""

    def __init__(self, epoch: int) -> None:
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"there is a controller after the one of epoch {epoch}"
        )


async def elect_controller(
    registry: Registry, broker_id: int, now_ms: int
) -> ControllerEpoch | None:
    """Take /controller if no broker has it, and raise the epoch that fences predecessors.

    Both happen or neither: no two controllers have the same epoch (KAFKA-6082).
    None where another broker is the controller. The caller must not be the controller already.
    """
    await _withdraw_unanswered(registry, broker_id)
    try:
        data, stat = await registry.get(paths.CONTROLLER_EPOCH)
    except NoNodeError:
        try:
            await registry.create(paths.CONTROLLER_EPOCH, encode_epoch(0))
        except NodeExistsError:
            pass  # another broker of a new cluster was faster
        data, stat = await registry.get(paths.CONTROLLER_EPOCH)
    epoch = _last_epoch(data, stat) + 1
    if epoch > INT_MAX:
        raise KafkaError.of(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{paths.CONTROLLER_EPOCH}: no epoch is left"
        )
    try:
        _, written = await registry.multi(
            (
                Create(paths.CONTROLLER, encode_controller(broker_id, now_ms), ephemeral=True),
                Set(paths.CONTROLLER_EPOCH, encode_epoch(epoch), stat.version),
            )
        )
    except (NodeExistsError, BadVersionError):
        return None
    assert written is not None, "a registry says what a set has made of the node"
    return ControllerEpoch(epoch, written.version)


def _last_epoch(data: bytes, stat: Stat) -> int:
    """The epoch before the next one, also where the node was overwritten with something else."""
    try:
        return decode_epoch(data)
    except KafkaError as error:
        # Each election writes the node once: its version is no smaller than the last epoch.
        logger.error("%s: %s; epoch %d comes next", paths.CONTROLLER_EPOCH, error, stat.version + 1)
        return stat.version


async def _withdraw_unanswered(registry: Registry, broker_id: int) -> None:
    """Delete a /controller of this session that no controller stands for.

    The election's answer was lost, or the node was overwritten and no longer names a broker.
    """
    try:
        data, stat = await registry.get(paths.CONTROLLER)
        named = _named(data)
        if stat.is_own and named in (broker_id, None):
            await registry.delete(paths.CONTROLLER, stat.version)
        elif named is None:
            logger.error("%s has to go before a controller can be elected", paths.CONTROLLER)
    except (NoNodeError, BadVersionError):
        pass  # there is no controller, or another one


async def give_up_control(registry: Registry, broker_id: int, epoch: ControllerEpoch) -> None:
    """Make room for another election, if this broker is still the controller of this epoch."""
    try:
        data, stat = await registry.get(paths.CONTROLLER)
        named = _named(data)
        if named == broker_id or (named is None and stat.is_own):
            await registry.multi(
                (
                    Check(paths.CONTROLLER_EPOCH, epoch.version),
                    Delete(paths.CONTROLLER, stat.version),
                )
            )
    except (NoNodeError, BadVersionError):
        pass  # another broker is the controller, or will be


async def current_controller(registry: Registry) -> int | None:
    """The broker that is the controller; None if there is none, or the node is unreadable."""
    try:
        data, _ = await registry.get(paths.CONTROLLER)
    except NoNodeError:
        return None
    return _named(data)


def _named(data: bytes) -> int | None:
    """The broker that the node names; None if its content is not valid."""
    try:
        return decode_controller(data)
    except KafkaError as error:
        logger.error("%s: %s", paths.CONTROLLER, error)
        return None


async def refuse_zombie(registry: Registry, epoch: ControllerEpoch, error: RegistryError) -> None:
    """ControllerMovedError if a write was refused because another controller was elected."""
    if isinstance(error, BadVersionError):
        stat = await registry.exists(paths.CONTROLLER_EPOCH)
        if stat is None or stat.version != epoch.version:
            raise ControllerMovedError(epoch.epoch) from error
