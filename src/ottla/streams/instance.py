"""Instances of one application that share its queries, as the members of a group do.

Each query has a changelog topic of one partition, and the group's assignment of these partitions
names the instance that runs each query; all others keep a copy of its state, ready to take
over. Membership decides which one should run a query. That no other one writes is not left to
membership: a starting query fences the one before (`ottla.spark.checkpoint_topic`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from ottla.clients.consumer.consumer import Consumer
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.config.client_config import ConsumerConfig
from ottla.spark.checkpoint_topic import CheckpointCopy
from ottla.spark.exactly_once import is_left_to_another
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.pipelines.patient_query import PatientQuery

logger = logging.getLogger(__name__)

HEARTBEAT_POLL_MS = 100
# Kafka Streams has a member for each thread of an instance, and numbers them from 1.
MEMBER = 1
ASSIGNOR = "cooperative-sticky"

Begin = Callable[[str, CheckpointCopy], "PatientQuery"]
Follow = Callable[[str], CheckpointCopy]


class StreamsInstance:
    """A member of the application's group, in a thread of its own until `stop` or an error.

    `begin` starts the query of a changelog topic with the copy of its state; `follow` makes such a
    copy. Both are called in that thread.
    """

    def __init__(
        self,
        application_id: str,
        instance_id: str | None,
        client: Mapping[str, str],
        topics: Sequence[str],
        begin: Begin,
        follow: Follow,
    ) -> None:
        own = {"group.id": application_id, "enable.auto.commit": "false"}
        own["allow.auto.create.topics"] = "false"  # changelogs are compacted
        if instance_id is not None:
            own["group.instance.id"] = f"{instance_id}-{MEMBER}"
        strategy = {"partition.assignment.strategy": ASSIGNOR}
        self._settings = {**strategy, **ConsumerConfig.known_of(client), **own}
        self._name = instance_id or application_id
        self._topics = topics
        self._begin = begin
        self._follow = follow
        self._queries: dict[str, PatientQuery] = {}
        self._copies: dict[str, CheckpointCopy] = {}
        self._is_stopping = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"streams-{self._name}")
        self._end: Future[None] | None = None

    def start(self) -> None:
        """Join the group; returns at once."""
        self._end = self._executor.submit(self._run)

    @property
    def is_active(self) -> bool:
        """Whether it is a member still."""
        return self._end is not None and not self._end.done()

    @property
    def queries(self) -> list[PatientQuery]:
        """The queries that run here."""
        return list(self._queries.values())

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; returns whether it came, and raises the error that it came with."""
        if self._end is None:
            return True
        try:
            self._end.result(timeout_s)
        except TimeoutError:
            if not self._end.done():
                return False
            raise  # the query's own
        return True

    def stop(self) -> None:
        """End the queries between two micro-batches, and stop being a member.

        One with an instance id leaves nothing to others within session.timeout.ms.
        """
        self._is_stopping = True
        self._executor.shutdown()

    def _run(self) -> None:
        try:
            with Consumer(settings=self._settings) as consumer:
                consumer.subscribe(self._topics, listener=Handover(self, consumer))
                try:
                    while not self._is_stopping:
                        consumer.poll(HEARTBEAT_POLL_MS)
                        self._step({each.topic for each in consumer.assignment()})
                finally:
                    self.release(list(self._queries))
        except BaseException as error:
            logger.error("the instance %s has ended: %s", self._name, error)
            raise
        finally:
            for copy in self._copies.values():
                copy.close()
            self._copies.clear()

    def _step(self, assigned: set[str]) -> None:
        for topic in self._topics:
            if topic in assigned:
                self._keep_running(topic)
            else:
                self._keep_warm(topic)

    def _keep_running(self, topic: str) -> None:
        query = self._queries.get(topic)
        try:
            if query is None:
                copy = self._copies.pop(topic, None) or self._follow(topic)
                logger.info("%s takes over %s", self._name, topic)
                self._queries[topic] = self._begin(topic, copy)
                return
            has_ended = query.has_ended()
        except Exception as error:
            if not is_left_to_another(error):
                raise
            logger.warning("%s: %s", topic, error)
            has_ended = True
        if has_ended:
            # Membership says whose it is; if it is still this instance's, it begins again.
            self._queries.pop(topic, None)

    def _keep_warm(self, topic: str) -> None:
        if topic not in self._copies:
            self._copies[topic] = self._follow(topic)
        self._copies[topic].poll(0)

    def release(self, topics: Sequence[str]) -> None:
        """Stop the queries of these topics, between two micro-batches."""
        for topic in topics:
            query = self._queries.pop(topic, None)
            if query is not None:
                logger.info("%s gives up %s", self._name, topic)
                query.stop()


class Handover(RebalanceListener):
    """Stops queries before others may have them; no records are read through the group."""

    def __init__(self, instance: StreamsInstance, consumer: Consumer) -> None:
        self._instance = instance
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """The next step begins the queries; the partitions themselves are not read."""
        self._consumer.pause(partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop the queries before other instances have them."""
        self._instance.release([each.topic for each in partitions])
