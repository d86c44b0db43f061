"""Where reading begins: at the committed offset of a partition, else as auto.offset.reset says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.clients.client_settings import retry_backoff
from ottla.clients.committed_offsets import fetch_offsets
from ottla.clients.consumer.subscription_state import RESETS, SubscriptionState, TopicPartitionState
from ottla.clients.topic_offsets import list_offsets
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from ottla.clients.group_coordination import CoordinatorLink
    from ottla.clients.metadata import Metadata
    from ottla.clients.network_client import NetworkClient
    from ottla.config.client_config import ConsumerConfig

SEARCH: Final = "the search for positions"


class Positions:
    """Gives every assigned partition a position."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        config: ConsumerConfig,
        link: CoordinatorLink | None,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self._link = link
        self._isolation = IsolationLevel.of(config.isolation_level)
        self._runtime = client.runtime
        self._backoff = retry_backoff(config, self._runtime)

    async def find(self) -> None:
        """Continue until no partition lacks a position; raises errors that are not retriable."""
        failures = 0
        while not self._subscriptions.has_all_positions:
            try:
                await self._take_committed(self._subscriptions.without_position())
                await self._reset(self._subscriptions.to_be_reset())
                self._client.troubles.worked(SEARCH)
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._client.troubles.failed(SEARCH, error)
                if self._link is not None:
                    self._link.note(error)
                failures += 1
                await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
                if error.error.refresh_metadata:
                    self._metadata.request_update()

    async def _take_committed(self, states: Sequence[TopicPartitionState]) -> None:
        if not states:
            return
        committed = {}
        generations = {state: state.generation for state in states}  # before the first wait
        topics = {state.topic_partition.topic for state in states}
        if self._link is not None:
            first = Deadline(self._runtime.clock, self._config.retry_backoff_ms)
            await self._metadata.hear_of(topics, first)
        unheard = {name for name in topics if self._metadata.cluster.topic_id(name) is None}
        topic_ids = self._topic_ids(states)
        if self._link is not None:
            deadline = Deadline(self._runtime.clock, self._config.default_api_timeout_ms)
            coordinator = await self._link.node_id(deadline)
            committed = await fetch_offsets(
                self._client,
                coordinator,
                self._link.group_id,
                [state.topic_partition for state in states],
                require_stable=self._isolation is IsolationLevel.READ_COMMITTED,
                topic_ids=topic_ids,
            )
        late: KafkaError | None = None
        for state, generation in generations.items():
            if not self._subscriptions.is_current(state, generation):
                continue
            offset = committed.get(state.topic_partition)
            if offset is not None and state.topic_partition.topic in unheard:
                # In which topic of the name? It may be deleted, and the next one not be there yet.
                text = f"topic {state.topic_partition.topic} is not in the metadata"
                late = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            elif offset is not None:
                state.seek(offset.offset, offset.leader_epoch)
                state.topic_id = topic_ids.get(state.topic_partition.topic, NO_UUID)
            else:
                self._request_reset(state)
        if late is not None:
            raise late

    def _topic_ids(self, states: Sequence[TopicPartitionState]) -> dict[str, UUID]:
        """The ids of their topics, as far as the metadata have them.

        What is found is a position in the topic with that id: another one of the same name may be
        there when the answer comes, or soon after.
        """
        names = {state.topic_partition.topic for state in states}
        known = {name: self._metadata.cluster.topic_id(name) for name in names}
        return {name: id for name, id in known.items() if id is not None and id != NO_UUID}

    def _request_reset(self, state: TopicPartitionState) -> None:
        reset = RESETS.get(self._config.auto_offset_reset)
        if reset is None:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{state.topic_partition} has no committed offset and auto.offset.reset is none; "
                "seek to an offset, or commit one",
            )
        state.request_reset(reset)

    async def _reset(self, states: Sequence[TopicPartitionState]) -> None:
        if not states:
            return
        generations = {state: state.generation for state in states}  # before the first wait
        topics = {state.topic_partition.topic for state in states}
        deadline = Deadline(self._runtime.clock, self._config.default_api_timeout_ms)
        first = Deadline(self._runtime.clock, self._config.retry_backoff_ms)
        await self._metadata.hear_of(topics, first)
        await self._metadata.ask_again(topics, deadline)
        topic_ids = self._topic_ids(states)
        timestamps = {state.topic_partition: state.reset_to or 0 for state in states}
        found = await list_offsets(self._client, self._metadata, timestamps, self._isolation)
        failure: KafkaError | None = None
        for state, generation in generations.items():
            result = found.get(state.topic_partition)
            if isinstance(result, KafkaError):
                failure = result
            elif result is not None and self._subscriptions.is_current(state, generation):
                state.seek(result.offset)  # no leader epoch: nothing was read before it
                state.topic_id = topic_ids.get(state.topic_partition.topic, NO_UUID)
        if failure is not None:
            raise failure
