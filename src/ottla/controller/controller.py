"""The controller of the cluster. Each broker has one: one is elected, the others wait.

Every operation is an event of one queue: it reads the context, writes the registry, then changes
the context, and at its end informs the brokers. A change that a client hears of is in the registry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.controller.active_controller import ActiveController
from ottla.controller.active_feature import NewFeature
from ottla.controller.controller_context import ControllerContext
from ottla.controller.controller_election import (
    ControllerEpoch,
    ControllerMovedError,
    current_controller,
    elect_controller,
    give_up_control,
)
from ottla.controller.event_queue import EventQueue
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.orders_to_brokers import OrdersToBrokers
from ottla.controller.requested_topic import (
    UNASSIGNED,
    CreatedTopic,
    MorePartitions,
    Replicas,
    RequestedTopic,
)
from ottla.controller.topic_changes import Admit, free
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import REGISTRY_RETRY_MS, Registry, RegistryError, SessionEndedError, Watch
from ottla.registry.znodes import encode_log_dir_event
from ottla.runtime import Runtime, Timer
from ottla.structs import ElectionType, LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Controller:
    """The controller as one broker has it; `is_active` where this broker was elected.

    Invariant: when this broker stops being the controller, its queued events are dropped, and the
    event under way can write nothing, because its epoch is over.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        broker_config: BrokerConfig,
        orders: OrdersToBrokers,
        broker_id: int,
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.config = broker_config
        self.orders = orders
        self.broker_id = broker_id
        self.events = EventQueue(runtime, self._on_failure)
        self.features: list[NewFeature] = []
        """What makes the features of this broker, each time that it is elected."""
        self._unclean_elections = 0
        self._active: ActiveController | None = None
        self._nothing = ControllerContext()
        self._watch: Watch | None = None
        self._retry: Timer | None = None
        self._is_member = False
        # An epoch that must still be given up in the registry: until then, no broker is elected.
        self._unfinished: ControllerEpoch | None = None

    @property
    def is_active(self) -> bool:
        return self._active is not None

    @property
    def unclean_elections(self) -> int:
        """How many leaders were elected here that were not in sync, since the start."""
        active = self._active
        return self._unclean_elections + (active.core.partitions.unclean_elections if active else 0)

    @property
    def context(self) -> ControllerContext:
        """The controller's knowledge; empty where this broker is not the controller."""
        return self._nothing if self._active is None else self._active.context

    async def startup(self) -> None:
        """Stand for election, now and whenever there is no controller.

        The broker has registered itself before. If it is elected, this returns when all leaders
        are elected and informed.
        """
        self._is_member = True
        if self._watch is None:
            self._watch = self.registry.watch_data(paths.CONTROLLER, self._stand)
        await self.events.submit("election", self._elect)

    def shutdown(self) -> None:
        """Resign, and stand for no election."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._retry is not None:
            self._retry.cancel()
        self.resign()
        self.events.close()

    def resign(self) -> None:
        """Stop being the controller: the session that made this broker the controller has ended.

        It stands for election again when it has registered again, with `startup`.
        """
        self._is_member = False
        self._step_down()

    def _step_down(self) -> None:
        self._unclean_elections = self.unclean_elections
        active, self._active = self._active, None
        self._unfinished = None
        if active is not None:
            logger.info(
                "broker %d is no longer the controller of epoch %d",
                self.broker_id,
                active.epoch.epoch,
            )
            active.end()
            self.events.clear()

    async def create_topics(
        self, topics: Sequence[RequestedTopic], *, validate_only: bool = False, admit: Admit = free
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create each topic that can be; returns, by name, the topic or the error."""
        return await self.do(
            "create topics",
            lambda active: active.topics.create_topics(
                topics, validate_only=validate_only, admit=admit
            ),
        )

    async def auto_create_topic(self, name: str, assignment: Replicas = UNASSIGNED) -> None:
        """Create a topic on first use, with the broker's defaults, if it does not exist yet.

        The topics of the coordinators come into being in this way only.
        """
        await self.do(
            "create topic", lambda active: active.topics.auto_create_topic(name, assignment)
        )

    async def create_partitions(
        self, wishes: Sequence[MorePartitions], *, validate_only: bool = False, admit: Admit = free
    ) -> dict[str, KafkaError | None]:
        """Give topics more partitions; by name None, or why it was refused."""
        return await self.do(
            "create partitions",
            lambda active: active.topics.create_partitions(
                wishes, validate_only=validate_only, admit=admit
            ),
        )

    async def delete_topics(
        self, names: Sequence[str], *, admit: Admit = free
    ) -> dict[str, KafkaError | None]:
        """Delete topics with their records; by name None, or why it was refused.

        It returns when the topics are gone, except for replicas on dead brokers: these go when the
        brokers are back, and until then no other topic can have the name.
        """
        active = self._require_active()
        results = await self.do(
            "delete topics", lambda active: active.topics.delete_topics(names, admit)
        )
        begun = [name for name, error in results.items() if error is None]
        settled = map(active.core.deletion.settled, begun)
        outcomes = await asyncio.gather(*settled, return_exceptions=True)
        for name, outcome in zip(begun, outcomes, strict=True):
            if isinstance(outcome, RegistryError):
                results[name] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return results

    async def alter_partitions(
        self,
        broker_id: int,
        broker_epoch: int,
        changes: Mapping[TopicPartition, LeaderAndIsr],
        broker_epochs: Mapping[TopicPartition, Mapping[int, int]],
    ) -> dict[TopicPartition, LeaderAndIsr | KafkaError]:
        """Change the ISR of partitions that a broker leads; KafkaError for all if it is fenced.

        `broker_epochs` has, for each partition, the broker epochs of its replicas (KIP-903).
        """
        return await self.do(
            "alter partitions",
            lambda active: active.isr.alter(broker_id, broker_epoch, changes, broker_epochs),
        )

    async def until_idle(self) -> None:
        """Return when all events queued before have run, such as loading after an election."""
        await self.do("wait", _nothing)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaders away from a broker that is about to stop; returns those that remain."""
        return await self.do(
            "controlled shutdown", lambda active: active.brokers.shut_down(broker_id, broker_epoch)
        )

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these, or with None of all partitions that need such an election."""
        return await self.do(
            "elect leaders", lambda active: active.balance.elect(election, partitions)
        )

    async def on_log_dir_event(self, broker_id: int) -> None:
        """A log directory of this broker has failed: the controller, wherever it is, will act."""
        if self.is_active:
            await self.do("log dir failure", partial(_on_log_dir_failed, broker_id=broker_id))
        else:
            await self.registry.create(
                paths.LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id), sequential=True
            )

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's settings have changed: elections follow the new ones."""
        self.config = config
        if self._active is not None:
            self._active.core.partitions.config = config

    async def on_unclean_election_allowed(self) -> None:
        """A setting has changed: partitions without a leader may get one now."""
        if self.is_active:
            await self.do(
                "unclean election", lambda active: active.core.partitions.bring_back_online()
            )

    async def do(self, name: str, operation: Callable[[ActiveController], Awaitable[T]]) -> T:
        """Queue an operation and return its result; NOT_CONTROLLER if this broker is not it."""
        self._require_active()

        async def carry_out() -> T:
            active = self._require_active()
            return await self._run(active, lambda: operation(active), may_refuse=True)

        return await self.events.submit(name, carry_out)

    async def _run(
        self,
        active: ActiveController,
        operation: Callable[[], Awaitable[T]],
        *,
        may_refuse: bool = False,
    ) -> T:
        """Run it as the controller of this epoch, and send the outcome to the brokers.

        With `may_refuse`, a KafkaError is a refusal of a client's request. Any other failure may
        have left things half done, so the epoch is given up.
        """
        if active is not self._active:
            raise self._not_controller()
        try:
            result = await operation()
        except (ControllerMovedError, SessionEndedError) as error:
            self._lose(active, error)
            raise self._not_controller() from error
        except KafkaError as error:
            if may_refuse and not isinstance(error, RegistryError):
                await active.after_event()
            else:
                self._give_up(active)
            raise
        finally:
            if active is not self._active:  # it has resigned meanwhile: end the work begun since
                active.end()
        if active is self._active:
            await active.after_event()
        return result

    def _require_active(self) -> ActiveController:
        if self._active is None:
            raise self._not_controller()
        return self._active

    def _not_controller(self) -> KafkaError:
        return KafkaError.of(
            ErrorCode.NOT_CONTROLLER, f"broker {self.broker_id} is not the controller"
        )

    def _stand(self) -> None:
        """Queue an election: see whether there is a controller, and which.

        A broker that has just failed as controller lets others try before it tries again.
        """
        if self._retry is None or self._active is not None:
            self.events.put_once("election", self._elect)

    def _stand_again(self) -> None:
        self._retry = None
        self._stand()

    async def _elect(self) -> None:
        """Take over where there is no controller; resign where there is another one."""
        if self._active is not None:
            if await current_controller(self.registry) == self.broker_id:
                return
            self._step_down()
        if not self._is_member:
            return
        await self._finish_giving_up()
        epoch = await elect_controller(self.registry, self.broker_id, self.runtime.clock.now_ms())
        if epoch is None:
            logger.info("another broker is the controller")
            return
        logger.info("broker %d is the controller in epoch %d", self.broker_id, epoch.epoch)
        active = self._active = ActiveController(
            self.runtime,
            FencedRegistry(self.registry, epoch),
            self.config,
            self.orders,
            self.events,
            self._run,
            self.features,
        )
        await self._run(active, active.begin)

    def _lose(self, active: ActiveController, reason: Exception) -> None:
        """The registry or a successor has ended the epoch; there may be another election."""
        if active is self._active:
            logger.warning("broker %d: %s", self.broker_id, reason)
            if isinstance(reason, SessionEndedError):
                self.resign()
            else:
                self._step_down()
                self._stand()

    def _give_up(self, active: ActiveController) -> None:
        """An event failed half way: resign, so that the next controller starts from the registry.

        At once: queued events must not build on writes that may have failed.
        """
        if active is self._active:
            self._step_down()
            self._unfinished = active.epoch
            self._stand_later()
            self.events.put("make room", self._finish_giving_up)

    async def _finish_giving_up(self) -> None:
        """Make room for the next elected controller, maybe this broker again."""
        if self._unfinished is not None:
            await give_up_control(self.registry, self.broker_id, self._unfinished)
            self._unfinished = None

    def _on_failure(self, name: str, error: Exception) -> None:
        """An event has failed that no caller waits for, or with an unexpected error."""
        if isinstance(error, KafkaError):
            if error.error is not ErrorCode.NOT_CONTROLLER:
                logger.error("The controller's event %r failed: %s", name, error)
        else:
            logger.error("The controller's event %r failed", name, exc_info=error)
        if self._active is not None and not isinstance(error, KafkaError):
            self._give_up(self._active)
        elif name == "election":
            self._stand_later()

    def _stand_later(self) -> None:
        if self._watch is not None:
            if self._retry is not None:
                self._retry.cancel()
            self._retry = self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._stand_again)


async def _on_log_dir_failed(active: ActiveController, broker_id: int) -> None:
    await active.brokers.on_log_dirs_failed((broker_id,))


async def _nothing(_active: ActiveController) -> None:
    """A no-op event: callers await it to run after all events queued before it."""
