"""Fetch (1): read record batches as they are stored in the log.

Behaviour: the answer names regions of segment files, which the network sends with sendfile; a
fetch that finds fewer than min_bytes waits up to max_wait_ms in the purgatory. A consumer over its
quota gets its answer without records, and throttle_time_ms says when to ask again.

Version notes: v0-3 read message sets (`MessageSetFetch`) · v4 isolation level · v5 log start
offset · v7 fetch sessions (KIP-227) · v9 leader epoch (KIP-320) · v10 zstd · v11 rack · v12
flexible · v13 topic ids (KIP-516) · v15 replica state (KIP-903) · v16 current leader where another
broker leads, or in another epoch (KIP-951) · v17 directory ids · v18 high watermark of a replica
(KIP-1166; our followers do not send it).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import NO_QUOTA, RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import (
    FIRST_VERSION_OF_CONSUMERS,
    FIRST_VERSION_WITH_LEADERS,
    FIRST_VERSION_WITH_REPLICA_STATE,
    FIRST_VERSION_WITH_ZSTD,
    LAST_VERSION_OF_LEADERS,
    LAST_VERSION_WITH_NAMES,
    AbortedTransaction,
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from ottla.record.compression import CompressionType
from ottla.replication.delayed_fetch import FetchResults
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import (
    READ_AT_ONCE,
    FetchParams,
    FetchPartitionResult,
    PartitionFetch,
)
from ottla.server.api import Handler
from ottla.server.brokers_only import is_follower
from ottla.server.fetch_session import (
    FetchContext,
    FetchSessionCache,
    is_unresolved,
    unresolved_name,
)
from ottla.server.metadata_cache import CurrentLeaders
from ottla.structs import CONSUMER_REPLICA_ID, NO_EPOCH, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from ottla.server.message_set_fetch import MessageSets
    from ottla.server.parts import MayRead

logger = logging.getLogger(__name__)

ERRORS_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
NO_RECORDS = b""
ISOLATION_LEVELS = {int(level): level for level in IsolationLevel}
MAX_USELESS = 1_000
ASKED_AT_ONCE = 2_000
"""Partitions of a request that are made, or of a session whose rights are asked, in one step."""
RIGHTS_AT_ONCE = 500
"""Topics whose rights are asked in one step where there are more: to decide takes long."""


class FetchHandler:
    """Reads through the replica manager, within fetch sessions."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        sessions: FetchSessionCache,
        leaders: CurrentLeaders,
        fetch_max_bytes: int,
        may_read: MayRead | None = None,
    ) -> None:
        self.replica_manager = replica_manager
        self.sessions = sessions
        self.leaders = leaders
        self.fetch_max_bytes = fetch_max_bytes
        self.may_read = may_read

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.FETCH: self.handle_fetch}

    def handle_fetch(
        self, context: RequestContext, body: FetchRequest, asked: Sequence[PartitionFetch] = ()
    ) -> FetchResponse | Coroutine[Any, Any, FetchResponse | None] | None:
        """The answer; the partitions that the request has `asked` for may be known already."""
        count = 0
        for topic in body.topics:
            count += len(topic.partitions)
        if count > ASKED_AT_ONCE and not asked and not is_follower(body):
            return self._fetch_many(context, body)
        connection_id = context.connection.id
        fetch = self.sessions.context_for(body, context.api_version, connection_id, asked)
        if self.may_read is None or is_follower(body) or len(fetch.partitions) <= ASKED_AT_ONCE:
            return self._serve(context, body, fetch, {})
        return self._ask_and_serve(context, body, fetch, self.may_read)

    async def _fetch_many(
        self, context: RequestContext, body: FetchRequest
    ) -> FetchResponse | None:
        """The answer to a consumer that names very many partitions, which are read in slices."""
        slices = self.replica_manager.runtime.slices
        by_id = context.api_version > LAST_VERSION_WITH_NAMES
        requested = self.sessions.requested(body, by_id)
        asked = [each async for each in slices.over(requested, ASKED_AT_ONCE)]
        await slices.pause()
        if context.connection.is_closing:
            return None
        answer = self.handle_fetch(context, body, asked)
        return await answer if isinstance(answer, Coroutine) else answer

    async def _ask_and_serve(
        self, context: RequestContext, body: FetchRequest, fetch: FetchContext, may_read: MayRead
    ) -> FetchResponse | None:
        """The answer to a consumer of very many topics, whose rights are asked in slices."""
        slices = self.replica_manager.runtime.slices
        names = dict.fromkeys(each.topic_partition.topic for each in fetch.partitions)
        rights: dict[str, bool] = {}
        async for name in slices.over(names, RIGHTS_AT_ONCE):
            rights[name] = is_unresolved(name) or may_read(context, name)
        await slices.pause()
        if context.connection.is_closing:
            return None
        answer = self._serve(context, body, fetch, rights)
        return await answer if isinstance(answer, Coroutine) else answer

    def _serve(
        self,
        context: RequestContext,
        body: FetchRequest,
        fetch: FetchContext,
        rights: Mapping[str, bool],
    ) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | None:
        """The answer; the rights to some topics may be known already."""
        version, partitions = context.api_version, fetch.partitions
        denied = self._denied(context, body, fetch, rights)
        if len(partitions) > MAX_USELESS and not is_follower(body):
            self._refuse_useless(fetch, denied)
        if fetch.error is not ErrorCode.NONE:
            return FetchResponse(error_code=int(fetch.error), session_id=fetch.session_id)

        if denied:
            partitions = [each for each in partitions if each.key not in denied]

        params = fetch_params(body, version, self.fetch_max_bytes)
        is_from_follower = params.is_from_follower
        if is_from_follower:
            context.quota.exempt()
        elif context.quota is not NO_QUOTA:
            params.max_bytes = min(params.max_bytes, context.quota.max_fetch_bytes)
            params.min_bytes = min(params.min_bytes, params.max_bytes)
        if len(fetch.partitions) > READ_AT_ONCE:
            if not is_from_follower:
                return self._fetch_in_slices(context, params, fetch, list(partitions), denied)
            self.sessions.check_follower(body, fetch)

        def respond(results: FetchResults) -> None:
            if not is_from_follower:
                keep_within_quota(context, results)
            results.update(denied)
            endpoints: dict[int, NodeEndpoint] = {}
            leader_of = partial(
                self.leaders.find, listener_name=context.listener_name, endpoints=endpoints
            )
            topics = topic_responses(fetch.answer(results), version, leader_of)
            context.respond(
                FetchResponse(
                    session_id=fetch.session_id,
                    responses=topics,
                    node_endpoints=list(endpoints.values()),
                )
            )

        if version < FIRST_VERSION_WITH_ZSTD:
            self._fetch_for_old_reader(context, params, fetch, partitions, denied, respond)
        else:
            operation = self.replica_manager.fetch_records(params, partitions, respond)
            context.wait_for(operation)
        return None

    async def _fetch_in_slices(
        self,
        context: RequestContext,
        params: FetchParams,
        fetch: FetchContext,
        partitions: Sequence[PartitionFetch],
        denied: FetchResults,
    ) -> FetchResponse:
        """The answer to a consumer with very many partitions; readers of message sets have none."""
        from ottla.server.handlers.wide_fetch import WideFetch

        version = context.api_version
        if version < FIRST_VERSION_OF_CONSUMERS:
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"a Fetch v{version} of {len(partitions)} partitions, of at most {READ_AT_ONCE}",
            )
        replica_manager, connection = self.replica_manager, context.connection
        wide = WideFetch(replica_manager, params, partitions, lambda: not connection.is_closing)
        found: FetchResults = {}
        await wide.run(found.update)
        if version < FIRST_VERSION_WITH_ZSTD:
            self._refuse_unreadable(partitions, found, version)
        keep_within_quota(context, found)
        found.update(denied)
        answer = FetchResponse(session_id=fetch.session_id)
        endpoints: dict[int, NodeEndpoint] = {}
        leader_of = partial(
            self.leaders.find, listener_name=context.listener_name, endpoints=endpoints
        )
        named = fetch.answer(found)
        while some := list(islice(named, READ_AT_ONCE)):
            answer.responses += topic_responses(some, version, leader_of)
            await replica_manager.runtime.slices.pause()
        answer.node_endpoints = list(endpoints.values())
        return answer

    def _refuse_useless(self, fetch: FetchContext, denied: FetchResults) -> None:
        """A session does not keep names without end that are unknown here or may not be read."""
        known = self.replica_manager.partitions
        useless = sum(
            each.topic_partition not in known or each.key in denied for each in fetch.partitions
        )
        if useless > MAX_USELESS:
            self.sessions.end(fetch)

    def _denied(
        self,
        context: RequestContext,
        body: FetchRequest,
        fetch: FetchContext,
        rights: Mapping[str, bool],
    ) -> FetchResults:
        """The partitions a consumer may not read; asked each time, as a session outlives rights."""
        may_read = self.may_read
        if may_read is None or is_follower(body):
            return {}
        topics = {each.topic_partition.topic for each in fetch.partitions}
        left = (each for each in topics if each not in rights and not is_unresolved(each))
        unreadable = {topic for topic in left if not may_read(context, topic)}
        unreadable.update(topic for topic, is_readable in rights.items() if not is_readable)
        if not unreadable:
            return {}
        keys = [each.key for each in fetch.partitions if each.topic_partition.topic in unreadable]
        return dict.fromkeys(keys, FetchPartitionResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    def _fetch_for_old_reader(
        self,
        context: RequestContext,
        params: FetchParams,
        fetch: FetchContext,
        partitions: Collection[PartitionFetch],
        denied: FetchResults,
        respond: Callable[[FetchResults], object],
    ) -> None:
        """The same, but topics that the reader cannot read give an error."""
        version = context.api_version

        def respond_with_batches(results: FetchResults) -> None:
            self._refuse_unreadable(partitions, results, version)
            respond(results)

        def respond_with_message_sets(results: FetchResults, message_sets: MessageSets) -> None:
            self._refuse_unreadable(partitions, results, version)
            if not keep_within_quota(context, results):
                message_sets = {}
            topics = topic_responses(fetch.answer({**results, **denied}), version)
            put_message_sets(topics, message_sets)
            context.respond(FetchResponse(responses=topics))

        def fail(error: BaseException) -> None:
            logger.error("down-conversion failed: %r", error, exc_info=error)
            context.close_connection(f"down-conversion failed: {error!r}")

        if version >= FIRST_VERSION_OF_CONSUMERS:
            operation = self.replica_manager.fetch_records(params, partitions, respond_with_batches)
            context.wait_for(operation)
            return
        from ottla.server.message_set_fetch import MessageSetFetch  # few readers are as old

        message_set_fetch = MessageSetFetch(
            self.replica_manager, params, list(partitions), version, respond_with_message_sets, fail
        )
        context.wait_for(message_set_fetch.start())

    def _refuse_unreadable(
        self, requests: Iterable[PartitionFetch], results: FetchResults, api_version: int
    ) -> None:
        """Refuse topics stored with zstd (KIP-110), or with conversion disabled (KIP-283)."""
        for request in requests:
            config = self.replica_manager.log_config(request.topic_partition)
            result = results.get(request.key)
            if config is None or result is None or result.error is not ErrorCode.NONE:
                continue
            if config.compression_type == CompressionType.ZSTD.label:
                result.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            elif (
                api_version < FIRST_VERSION_OF_CONSUMERS
                and not config.message_downconversion_enable
            ):
                result.error = ErrorCode.UNSUPPORTED_VERSION
            else:
                continue
            result.records = None


def keep_within_quota(context: RequestContext, results: FetchResults) -> bool:
    """Take the records out of the results if the client is over its quota (KIP-219)."""
    if context.quota is NO_QUOTA:
        return True
    if context.quota.admits_fetch(sum(result.size_in_bytes for result in results.values())):
        return True
    for result in results.values():
        result.records = None
        result.aborted_transactions = None if result.aborted_transactions is None else ()
    return False


def fetch_params(body: FetchRequest, api_version: int, fetch_max_bytes: int) -> FetchParams:
    """The reader, and its limits. Our fetch.max.bytes does not limit a follower."""
    replica_id, replica_epoch = body.replica_id, NO_EPOCH
    if api_version >= FIRST_VERSION_WITH_REPLICA_STATE:
        replica_id = CONSUMER_REPLICA_ID
        if body.replica_state is not None:
            replica_id = body.replica_state.replica_id
            replica_epoch = body.replica_state.replica_epoch
    is_consumer = replica_id <= CONSUMER_REPLICA_ID
    return FetchParams(
        max(replica_id, CONSUMER_REPLICA_ID),
        body.max_wait_ms,
        min(body.min_bytes, body.max_bytes),
        min(body.max_bytes, fetch_max_bytes) if is_consumer else body.max_bytes,
        ISOLATION_LEVELS.get(body.isolation_level, IsolationLevel.READ_UNCOMMITTED),
        replica_epoch,
        may_read_from_follower=is_consumer and api_version > LAST_VERSION_OF_LEADERS,
        client_rack=body.rack_id,
    )


def aborted_transactions(result: FetchPartitionResult) -> list[AbortedTransaction] | None:
    """The aborted transactions; null, not empty, where the reader did not ask for them."""
    if result.aborted_transactions is None:
        return None
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in result.aborted_transactions
    ]


def diverging_epoch(result: FetchPartitionResult) -> DivergingEpoch | None:
    """Where the reader's log parts from ours, if it does (KIP-595)."""
    found = result.diverging_epoch
    if found is None:
        return None
    return DivergingEpoch(epoch=found.epoch, end_offset=found.start_offset)


def put_message_sets(topics: list[FetchableTopicResponse], message_sets: MessageSets) -> None:
    """Replace the stored batches in an answer by the converted ones."""
    for topic in topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition_index)
            is_wanted = partition.error_code == ErrorCode.NONE
            partition.records = message_sets.get(tp, NO_RECORDS) if is_wanted else NO_RECORDS


def _unknown_topic(request: PartitionFetch) -> ErrorCode:
    """The error for a topic that is asked for by its id: its name may be known all the same."""
    if request.topic_partition.topic == unresolved_name(request.topic_id):
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def topic_responses(
    results: Iterable[tuple[PartitionFetch, FetchPartitionResult]],
    api_version: int,
    leader_of: Callable[[TopicPartition], LeaderIdAndEpoch] | None = None,
) -> list[FetchableTopicResponse]:
    """The partitions of the answer, grouped by topic in the order they were read.

    A client that should ask another broker, or has missed an election, gets the leader.
    """
    if api_version < FIRST_VERSION_WITH_LEADERS:
        leader_of = None
    uses_topic_ids = api_version > LAST_VERSION_WITH_NAMES
    topics: list[FetchableTopicResponse] = []
    current = None
    for request, result in results:
        name = request.topic_partition.topic
        # A topic that was deleted and the one that was made in its place may be in one session.
        if (name, request.topic_id) != current:
            current = (name, request.topic_id)
            topics.append(FetchableTopicResponse(topic=name, topic_id=request.topic_id))
        error = result.error
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and uses_topic_ids:
            error = _unknown_topic(request)
        data = PartitionData(
            partition_index=request.topic_partition.partition,
            error_code=int(error),
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            diverging_epoch=diverging_epoch(result),
            aborted_transactions=aborted_transactions(result),
            preferred_read_replica=result.preferred_read_replica,
            records=result.records if result.records is not None else NO_RECORDS,
        )
        if leader_of is not None and error in ERRORS_WITH_LEADER:
            data.current_leader = leader_of(request.topic_partition)
        topics[-1].partitions.append(data)
    return topics
