"""Whether the log still has the records before a position (KIP-320, KIP-516).

After an unclean election the new leader may lack records that a consumer has read, and write others
in their place. So a position carries the leader epoch of the last batch before it. When a
partition has another leader epoch, its leader is asked (OffsetForLeaderEpoch) where the old epoch
ends before the position is fetched again. If it ends before that, the log was truncated.

A topic that was deleted and created again has another id and another log: the position is that of
no record in it, and reading begins as auto.offset.reset says.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.clients.consumer.subscription_state import (
    FETCH_AGAIN,
    RESETS,
    SubscriptionState,
    TopicPartitionState,
)
from ottla.clients.topic_offsets import (
    EpochQuestion,
    Parting,
    epoch_ends,
    parting_before,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.leader_epoch import EpochEndOffset
from ottla.runtime.scheduler import is_under_way
from ottla.runtime.timing import Deadline
from ottla.structs import NO_EPOCH, NO_LEADER, NO_UUID, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.clients.metadata import Metadata
    from ottla.clients.network_client import NetworkClient
    from ottla.config.client_config import ConsumerConfig

logger = logging.getLogger(__name__)


class LogTruncationError(KafkaError):
    """Records before the position were lost: the log has diverged since they were read.

    `position` is that of the consumer, `divergent_offset` the first offset at which the log differs
    from the records read so far, None if the leader does not know. Only raised if
    auto.offset.reset is none; the application may `seek` to the divergent offset to continue.
    """

    def __init__(
        self, topic_partition: TopicPartition, position: int, divergent_offset: int | None
    ) -> None:
        where = "a place that is not known" if divergent_offset is None else divergent_offset
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log of {topic_partition} was truncated: the position is {position}, and what was "
            f"read from {where} on is no longer in it; seek to an offset to go on",
        )
        self.topic_partition = topic_partition
        self.position = position
        self.divergent_offset = divergent_offset

    @property
    def topic(self) -> str:
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        return self.topic_partition.partition


class TopicRecreatedError(KafkaError):
    """The topic was deleted and created again, so that the position is in another log.

    Only raised if auto.offset.reset is none; the application may `seek` in the new topic.
    """

    def __init__(self, topic_partition: TopicPartition, position: int | None) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"topic {topic_partition.topic} was deleted and created again: the position {position} "
            f"of {topic_partition} is one of the topic before; seek to an offset to go on",
        )
        self.topic_partition = topic_partition


class Asked(NamedTuple):
    """One position in a request to a leader, with its state and leader epoch."""

    state: TopicPartitionState
    generation: int
    offset: int
    epoch: int
    leader_epoch: int

    @property
    def is_answered_for(self) -> bool:
        """Whether the state is unchanged since the request: no seek, and nothing more fetched."""
        return self.state.fetch_offset == self.offset and not self.state.buffered


class PositionValidator:
    """Asks leaders about positions, one request at a time per leader, and acts on the responses.

    `on_answer` is called after each response, `on_error` with an error for the application.
    Everything runs on the loop.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        config: ConsumerConfig,
        on_answer: Callable[[], object],
        on_error: Callable[[TopicPartitionState, KafkaError], object],
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self._runtime = client.runtime
        self._on_answer = on_answer
        self._on_error = on_error
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Send no more requests."""
        self._is_closed = True

    def is_same_topic(self, state: TopicPartitionState) -> bool:
        """Whether the position is in the topic of the metadata, not in one of the same name."""
        topic = self._metadata.cluster.topics.get(state.topic_partition.topic)
        if topic is None or topic.topic_id == NO_UUID:
            return True
        if state.topic_id == NO_UUID:
            state.topic_id = topic.topic_id
        return state.topic_id == topic.topic_id

    def may_commit(self, state: TopicPartitionState, is_unfinished: bool) -> bool:
        """Whether the position is in a topic that exists, as far as the metadata say.

        The position in a deleted topic would be taken for one in the next topic of its name, if
        that is created before the commit arrives. With `is_unfinished` it is that of a record that
        the application was given, and is still to handle.
        """
        error = self._metadata.cluster.error_of(state.topic_partition.topic)
        is_deleted = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and state.topic_id != NO_UUID
        if is_deleted or not self.is_same_topic(state):
            return False
        return not is_unfinished or state.given_id == state.topic_id

    def begin_again(self, state: TopicPartitionState) -> None:
        """Handle a topic that was created again: begin in it as auto.offset.reset says.

        Without a reset policy the application gets an error, again and again until it seeks.
        """
        reset = RESETS.get(self._config.auto_offset_reset)
        if reset is None:
            self._retry_later(state)
            self._on_error(state, TopicRecreatedError(state.topic_partition, state.position))
            return
        logger.warning(
            "topic %s was deleted and created again: %s is read from its %s offset instead of %s",
            state.topic_partition.topic,
            state.topic_partition,
            self._config.auto_offset_reset,
            state.position,
        )
        state.request_reset(reset)

    def is_valid(self, state: TopicPartitionState) -> bool:
        """Whether the position may be fetched in the leader epoch of the metadata."""
        info = self._metadata.cluster.partition(state.topic_partition)
        if info is None or info.leader_epoch == NO_EPOCH or state.fetched_epoch == NO_EPOCH:
            return True
        return state.validated_epoch == info.leader_epoch

    def ask(self, states: Sequence[TopicPartitionState]) -> bool:
        """Ask the leaders whether these positions are in their logs.

        Returns True if some of the positions have to wait for newer metadata.
        """
        must_wait = False
        by_leader: dict[int, list[Asked]] = {}
        for state in states:
            leader = self._metadata.cluster.leader(state.topic_partition)
            leader_epoch = self._metadata.cluster.leader_epoch(state.topic_partition)
            if leader == NO_LEADER:
                continue
            if leader_epoch < state.fetched_epoch and not self._is_late(state):
                # The metadata are outdated: the last records came from a newer leader.
                self._metadata.request_update()
                must_wait = True
                continue
            epochs = (state.fetched_epoch, leader_epoch)
            asked = Asked(state, state.generation, state.fetch_offset, *epochs)
            by_leader.setdefault(leader, []).append(asked)
        for leader, asked_of_it in by_leader.items():
            if not is_under_way(self._under_way.get(leader)):
                question = self._ask_leader(leader, asked_of_it)
                name = f"validate positions at {leader}"
                self._under_way[leader] = self._runtime.scheduler.spawn(question, name)
        return must_wait

    def diverge(self, state: TopicPartitionState, parting: Parting, leader_epoch: int) -> None:
        """Handle a leader's log that differs, from `parting` on, from the records read so far.

        Without a reset policy the application gets an error; with one, reading continues at the
        first offset that differs, the nearest one at which nothing is skipped.
        """
        position = state.fetch_offset
        divergent = None if parting.offset is None else min(parting.offset, position)
        reset = RESETS.get(self._config.auto_offset_reset)
        if reset is None:
            self._retry_later(state)
            error = LogTruncationError(state.topic_partition, position, divergent)
            self._on_error(state, error)
        elif divergent is None:
            logger.warning(
                "the log of %s was truncated before %d; going on at the %s offset",
                state.topic_partition,
                position,
                self._config.auto_offset_reset,
            )
            state.request_reset(reset)
        else:
            logger.warning(
                "the log of %s was truncated: going back from %d to %d, where it differs",
                state.topic_partition,
                position,
                divergent,
            )
            state.seek(divergent, parting.epoch)
            state.validate(leader_epoch)

    def _is_late(self, state: TopicPartitionState) -> bool:
        """Whether metadata have had an older epoch for so long that they must be right.

        Brokers may report a leader that is cut off only until its session ends; a topic that was
        deleted and created again starts with small epochs again.
        """
        now_ms = self._runtime.clock.monotonic_ms()
        if state.outdated_since_ms is None:
            state.outdated_since_ms = now_ms
        return now_ms - state.outdated_since_ms > self._config.request_timeout_ms

    def _retry_later(self, state: TopicPartitionState) -> None:
        state.retry_at_ms = self._runtime.clock.monotonic_ms() + self._config.retry_backoff_ms

    async def _ask_leader(self, leader: int, asked: Sequence[Asked]) -> None:
        questions = {
            each.state.topic_partition: EpochQuestion(each.epoch, each.leader_epoch)
            for each in asked
        }
        try:
            if self._is_closed:
                return
            answers = await epoch_ends(self._client, leader, questions)
            if any(self._diverges(each, answers) for each in asked):
                # The request has no topic id: the answer may be about a topic created again.
                deadline = Deadline(self._runtime.clock, self._config.request_timeout_ms)
                await self._metadata.update(deadline)
        except KafkaError as error:
            self._on_answers(asked, dict.fromkeys(questions, error))
        else:
            self._on_answers(asked, answers)
        finally:
            self._under_way.pop(leader, None)
        self._on_answer()

    def _diverges(
        self, asked: Asked, answers: Mapping[TopicPartition, EpochEndOffset | KafkaError]
    ) -> bool:
        answer = answers.get(asked.state.topic_partition)
        return isinstance(answer, EpochEndOffset) and bool(parting_before(asked.offset, answer))

    def _current(self, asked: Sequence[Asked]) -> dict[TopicPartition, Asked]:
        """Those whose position has not changed since the request; others are asked again."""
        return {
            each.state.topic_partition: each
            for each in asked
            if self._subscriptions.is_current(each.state, each.generation) and each.is_answered_for
        }

    def _on_answers(
        self, asked: Sequence[Asked], answers: Mapping[TopicPartition, EpochEndOffset | KafkaError]
    ) -> None:
        for where, each in self._current(asked).items():
            answer = answers.get(where)
            if answer is None:
                self._retry_later(each.state)  # the response lacks it
            elif isinstance(answer, KafkaError):
                self._on_partition_error(each, answer)
            else:
                self._on_end(each, answer)

    def _on_end(self, asked: Asked, end: EpochEndOffset) -> None:
        parting = parting_before(asked.offset, end)
        if parting is None:
            asked.state.validate(asked.leader_epoch)
        else:
            self.diverge(asked.state, parting, asked.leader_epoch)

    def _on_partition_error(self, asked: Asked, error: KafkaError) -> None:
        state = asked.state
        if error.error is ErrorCode.UNSUPPORTED_VERSION:
            state.validate(asked.leader_epoch)  # the leader cannot tell: as before KIP-320
            return
        self._retry_later(state)
        self._metadata.request_update()
        if error.error in FETCH_AGAIN:
            logger.debug("validation of %s: %s", state.topic_partition, error)
        else:
            self._on_error(state, error)
