"""The questions of each API to the authorizer before it is served, and a denied client's answer.

`checks` has a row for every API. A check stands before the handler: the parts that the client has
no right to are taken out of the request, and its errors are put into the handler's answer
(`RequestContext.amend`). The handlers know nothing of it, and where no authorizer is configured no
check is made. A broker with an authorizer does not start with an API that has no row.

The order counts: group and transactional id before the topics, and the right to a topic before
whether it exists, so that a client without DESCRIBE learns nothing about its existence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode, LocalProtocolError
from ottla.extensions.rights import denials
from ottla.extensions.rights.asking import ERRORS, NAMES_IN_A_SLICE, Asking
from ottla.extensions.rights.check_kinds import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Check,
    Outcome,
    adding,
    free,
    keep,
    may_by_id,
    may_on_topic,
    of_brokers,
    of_cluster,
    of_configs,
    of_group,
    of_groups,
    of_topics,
    shown,
    split,
    split_in_slices,
    to_cluster,
)
from ottla.extensions.rights.denials import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    UNKNOWN,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResourceResponse,
)
from ottla.protocol.group import (
    FIND_COORDINATORS_VERSION,
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    FindCoordinatorRequest,
)
from ottla.protocol.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.message import Response
from ottla.protocol.metadata import (
    FIRST_VERSION_WITH_CREATION_FLAG,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from ottla.protocol.offsets import (
    FETCH_ERROR_VERSION,
    FETCH_GROUPS_VERSION,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)
from ottla.protocol.produce import ProduceRequest, ProduceResponse
from ottla.protocol.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from ottla.protocol.transactions import (
    FROM_BROKERS_VERSION,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
)
from ottla.record.record import TRANSACTIONAL_FLAG
from ottla.record.record_batch import BATCH_OVERHEAD, MAGIC, MAGIC_POSITION
from ottla.runtime.scheduler import Work
from ottla.security.acls import CLUSTER, TOLD_OPERATIONS, AclOperation, Resource, ResourceType
from ottla.security.delegation_tokens import may_ask, not_created, owner_of
from ottla.security.principal import KafkaPrincipal
from ottla.server.api import Answer, Handler
from ottla.server.apis import Apis
from ottla.server.brokers_only import is_follower
from ottla.server.handlers.added_topics import check_topics
from ottla.server.handlers.metadata import is_too_old_for_ids
from ottla.server.handlers.named_topics import FIRST_VERSIONS, has_ids, name_topics
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from ottla.extensions.rights.authorizer import Authorizer
    from ottla.network.request_context import RequestContext
    from ottla.protocol.consumer_group import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        ConsumerGroupHeartbeatRequest,
        DescribedConsumerGroup,
    )
    from ottla.protocol.delegation_tokens import CreateDelegationTokenRequest
    from ottla.protocol.fetch import FetchRequest
    from ottla.protocol.leader_epoch import OffsetForLeaderEpochRequest
    from ottla.protocol.reassignments import ElectLeadersRequest
    from ottla.server.metadata_cache import MetadataCache


ATTRIBUTES_POSITION: Final = 22

LOG_DIRS_ERROR_VERSION: Final = 3
DELETE_BY_ID_VERSION: Final = 6
NULL_FOR_ALL_VERSION: Final = 1


def check_produce(asking: Asking, body: ProduceRequest) -> Response | None:
    if any(_is_transactional(data.records) for t in body.topic_data for data in t.partition_data):
        name = body.transactional_id
        if name is None or not asking.may(WRITE, TRANSACTIONAL_ID, name):
            return _none_produced(asking, body, TRANSACTION_DENIED)
    left, denied = split(body.topic_data, may_by_id(asking, WRITE))
    if not denied:
        return None
    lines = list(map(denials.not_produced, denied))
    body.topic_data = left
    if not body.acks:
        asking.context.close_reason = f"acks=0 produce to {denied[0].name} is denied"
    elif not left:
        return ProduceResponse(responses=lines)
    asking.amend(adding("responses", lines))
    return None


def _is_transactional(records: memoryview | None) -> bool:
    return (
        records is not None
        and len(records) >= BATCH_OVERHEAD
        and records[MAGIC_POSITION] >= MAGIC  # an older format has other things in that place
        and bool(records[ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG)
    )


def _none_produced(asking: Asking, body: ProduceRequest, error: int) -> Response | None:
    if body.acks:
        return ProduceResponse(
            responses=[denials.not_produced(each, error) for each in body.topic_data]
        )
    asking.context.close_reason = f"acks=0 produce of {body.transactional_id!r} is denied"
    body.topic_data = []
    return None


def check_fetch(asking: Asking, body: FetchRequest) -> Response | None:
    """A follower needs CLUSTER_ACTION. The handler asks by itself for a consumer's rights:
    an incremental fetch does not name its partitions.
    """
    if not is_follower(body) or asking.authorizer.authorize_broker(asking.context):
        return None
    return denials.nothing_fetched(body)


def check_offset_for_leader_epoch(asking: Asking, body: OffsetForLeaderEpochRequest) -> Outcome:
    if asking.has(CLUSTER_ACTION, *CLUSTER):
        return None
    return keep(
        asking,
        body,
        "topics",
        "topics",
        lambda topic: asking.may(DESCRIBE, TOPIC, topic.topic),
        denials.epochs_not_told,
    )


def check_offset_commit(asking: Asking, body: OffsetCommitRequest) -> Outcome:
    if not asking.may(READ, GROUP, body.group_id):
        return OffsetCommitResponse(
            topics=[denials.not_committed(t, GROUP_DENIED) for t in body.topics]
        )
    is_allowed = may_by_id(asking, READ)
    return keep(asking, body, "topics", "topics", is_allowed, denials.not_committed)


def check_offset_fetch(asking: Asking, body: OffsetFetchRequest) -> Outcome:
    version = asking.context.api_version
    if version >= FETCH_GROUPS_VERSION:
        return _check_groups_fetched(asking, body)
    if not asking.may(DESCRIBE, GROUP, body.group_id):
        if version >= FETCH_ERROR_VERSION:
            return OffsetFetchResponse(error_code=GROUP_DENIED)
        return OffsetFetchResponse(
            topics=[denials.not_fetched(each, GROUP_DENIED) for each in body.topics or ()]
        )
    if body.topics is None:
        asking.amend(partial(_show_topics, asking))
        return None
    is_allowed = may_on_topic(asking, DESCRIBE)
    return keep(asking, body, "topics", "topics", is_allowed, denials.not_fetched)


def _show_topics(asking: Asking, answer: Any) -> Work[None]:
    return asking.leave_seen(DESCRIBE, TOPIC, [answer], "topics", "name")


def _check_groups_fetched(asking: Asking, body: OffsetFetchRequest) -> Outcome:
    def is_allowed(group: Any) -> bool:
        if not asking.may(DESCRIBE, GROUP, group.group_id):
            return False
        if group.topics is None:
            filtered.add(group.group_id)
        else:
            group.topics, denied = split(group.topics, is_topic_allowed)
            lines[group.group_id] = list(map(denials.not_fetched_of_group, denied))
        return True

    is_topic_allowed = may_by_id(asking, DESCRIBE)
    lines: dict[str, list[OffsetFetchResponseTopics]] = {}
    filtered: set[str] = set()

    def change(response: OffsetFetchResponse) -> Work[None]:
        served = [group for group in response.groups if not group.error_code]
        whole = [group for group in served if group.group_id in filtered]
        yield from asking.leave_seen(DESCRIBE, TOPIC, whole, "topics", "name")
        for group in served:
            group.topics.extend(lines.get(group.group_id, ()))

    refusal = keep(asking, body, "groups", "groups", is_allowed, denials.group_not_fetched)
    asking.amend(change)
    return refusal


def check_offset_delete(asking: Asking, body: OffsetDeleteRequest) -> Outcome:
    asking.need(DELETE, GROUP, body.group_id)
    return keep(
        asking, body, "topics", "topics", may_on_topic(asking, READ), denials.offsets_not_deleted
    )


COORDINATED: Final = {KEY_TYPE_GROUP: GROUP, KEY_TYPE_TRANSACTION: TRANSACTIONAL_ID}


def check_find_coordinator(asking: Asking, body: FindCoordinatorRequest) -> Outcome:
    type_ = COORDINATED.get(body.key_type)
    if type_ is None:
        return None  # the handler refuses it
    if asking.context.api_version < FIND_COORDINATORS_VERSION:
        asking.need(DESCRIBE, type_, body.key)
        return None
    return keep(
        asking,
        body,
        "coordinator_keys",
        "coordinators",
        lambda key: asking.may(DESCRIBE, type_, key),
        lambda key: denials.no_coordinator(key, ERRORS[type_]),
    )


def check_described_groups(refused: Callable[[str], object], entries: str) -> Check:
    """DescribeGroups of both kinds: the group, its operations, and no topics out of sight."""
    each = of_groups(DESCRIBE, entries, "groups", refused)

    def check(asking: Asking, body: Any) -> Outcome:
        if body.include_authorized_operations:

            def tell(response: Any) -> None:
                for group in response.groups:
                    if not group.error_code:
                        resource = Resource(GROUP, group.group_id)
                        group.authorized_operations = asking.authorizer.operations(
                            asking.context, resource
                        )

            asking.amend(tell)
        return each(asking, body)

    return check


def check_consumer_group_heartbeat(
    asking: Asking, body: ConsumerGroupHeartbeatRequest
) -> Work[None] | None:
    asking.need(READ, GROUP, body.group_id)
    asking.context.in_sight = asking.authorizer.sight(asking.context, TOPIC, DESCRIBE)
    names = body.subscribed_topic_names
    return _need_each(asking, names) if names else None


def _need_each(asking: Asking, topics: Iterable[str]) -> Work[None]:
    for number, name in enumerate(topics, 1):
        asking.need(DESCRIBE, TOPIC, name)
        if not number % NAMES_IN_A_SLICE:
            yield


def check_consumer_groups(asking: Asking, body: ConsumerGroupDescribeRequest) -> Outcome:
    """Check them as classic groups; one with a topic out of sight is refused (KAFKA-18813)."""

    def hide(response: ConsumerGroupDescribeResponse) -> Work[None]:
        groups = response.groups
        for place, group in enumerate(groups):
            if not (yield from _sees_topics_of(asking, group)):
                groups[place] = denials.topics_of_group_not_described(group.group_id)

    asking.amend(hide)
    return _check_consumer_groups(asking, body)


_check_consumer_groups: Final = check_described_groups(
    denials.consumer_group_not_described, "group_ids"
)


def _sees_topics_of(asking: Asking, group: DescribedConsumerGroup) -> Work[bool]:
    """Whether the client may see all topics that the members have, or are to have."""
    known, count = set[str](), 0
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for name in [topic.topic_name for topic in assignment.topic_partitions] or [""]:
                if name and name not in known:
                    known.add(name)
                    if not asking.sees(DESCRIBE, TOPIC, name):
                        return False
                count += 1
                if not count % NAMES_IN_A_SLICE:
                    yield
    return True


def check_init_producer_id(asking: Asking, body: InitProducerIdRequest) -> None:
    if body.transactional_id is not None:
        asking.need(WRITE, TRANSACTIONAL_ID, body.transactional_id)
    elif not asking.authorizer.authorize_on_any(asking.context, WRITE, TOPIC):
        asking.need(AclOperation.IDEMPOTENT_WRITE, *CLUSTER)


def check_add_partitions_to_txn(asking: Asking, body: AddPartitionsToTxnRequest) -> Outcome:
    if asking.context.api_version >= FROM_BROKERS_VERSION:
        of_brokers(asking, body)
        return None
    check_topics(body)
    topics = body.v3_and_below_topics
    name = body.v3_and_below_transactional_id
    if not asking.may(WRITE, TRANSACTIONAL_ID, name):
        return denials.not_added((topic, TRANSACTION_DENIED) for topic in topics)
    return _added_to_txn(asking, topics)


def _added_to_txn(
    asking: Asking, topics: list[AddPartitionsToTxnTopic]
) -> Work[AddPartitionsToTxnResponse | None]:
    """One topic that is denied keeps all others out."""
    left, denied = yield from split_in_slices(topics, may_on_topic(asking, WRITE))
    if not denied:
        return None
    others = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return denials.not_added([(t, TOPIC_DENIED) for t in denied] + [(t, others) for t in left])


def check_add_offsets_to_txn(asking: Asking, body: AddOffsetsToTxnRequest) -> None:
    asking.need(WRITE, TRANSACTIONAL_ID, body.transactional_id)
    asking.need(READ, GROUP, body.group_id)


def check_end_txn(asking: Asking, body: Any) -> None:
    asking.need(WRITE, TRANSACTIONAL_ID, body.transactional_id)


def check_write_txn_markers(asking: Asking, body: WriteTxnMarkersRequest) -> Response | None:
    if asking.has(ALTER, *CLUSTER) or asking.authorizer.authorize_broker(asking.context):
        return None
    return denials.markers_not_written(body)


def check_txn_offset_commit(asking: Asking, body: TxnOffsetCommitRequest) -> Outcome:
    error = 0
    if not asking.may(WRITE, TRANSACTIONAL_ID, body.transactional_id):
        error = TRANSACTION_DENIED
    elif not asking.may(READ, GROUP, body.group_id):
        error = GROUP_DENIED
    if error:
        topics = [denials.not_committed_in_txn(topic, error) for topic in body.topics]
        return TxnOffsetCommitResponse(topics=topics)
    is_allowed = may_by_id(asking, READ)
    return keep(asking, body, "topics", "topics", is_allowed, denials.not_committed_in_txn)


def check_describe_transactions(asking: Asking, body: Any) -> Outcome:
    def show(response: Any) -> Work[None]:
        found = response.transaction_states
        return asking.leave_seen(DESCRIBE, TOPIC, found, "topics", "topic")

    asking.amend(show)
    return keep(
        asking,
        body,
        "transactional_ids",
        "transaction_states",
        lambda name: asking.may(DESCRIBE, TRANSACTIONAL_ID, name),
        denials.transaction_not_described,
    )


def check_list_transactions(asking: Asking, body: Any) -> None:
    """Leave the topics that the client may see, before its expression is matched."""
    asking.context.in_sight = asking.authorizer.sight(asking.context, TRANSACTIONAL_ID, DESCRIBE)


def check_create_topics(asking: Asking, body: CreateTopicsRequest) -> Outcome:
    denied: Outcome = None
    if not asking.has(CREATE, *CLUSTER):
        denied = keep(
            asking,
            body,
            "topics",
            "topics",
            may_on_topic(asking, CREATE),
            denials.topic_not_created,
        )
    asking.amend(partial(_hide_settings, asking))
    return denied


def _hide_settings(asking: Asking, response: CreateTopicsResponse) -> None:
    for topic in response.topics:
        if topic.error_code or asking.sees(DESCRIBE_CONFIGS, TOPIC, topic.name):
            continue
        topic.topic_config_error_code = TOPIC_DENIED
        topic.num_partitions = topic.replication_factor = UNKNOWN
        topic.configs = []


def check_describe_log_dirs(asking: Asking, body: DescribeLogDirsRequest) -> Response | None:
    if asking.may_to_cluster(DESCRIBE):
        return None
    has_error = asking.context.api_version >= LOG_DIRS_ERROR_VERSION
    return DescribeLogDirsResponse(error_code=CLUSTER_DENIED if has_error else 0)


def check_elect_leaders(asking: Asking, body: ElectLeadersRequest) -> Response | None:
    if asking.may_to_cluster(ALTER):
        return None
    return denials.leaders_not_elected(body, asking.context.api_version)


def check_create_token(asking: Asking, body: CreateDelegationTokenRequest) -> Response | None:
    """A token of another owner needs CREATE_TOKENS on it, but for those that may ask for none."""
    requester = asking.context.principal
    owner = owner_of(body, requester)
    if owner == requester or not may_ask(requester):
        return None
    if asking.may(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return None
    return not_created(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)


def check_describe_tokens(asking: Asking, body: Any) -> None:
    """Owner, requester and renewers see a token; others need a right to it or to its owner."""
    asking.amend(partial(_show_tokens, asking))


def _show_tokens(asking: Asking, response: Any) -> Work[None]:
    is_shown = partial(_is_shown, asking, asking.context.principal)
    response.tokens, _ = yield from split_in_slices(response.tokens, is_shown)


def _is_shown(asking: Asking, me: KafkaPrincipal, token: Any) -> bool:
    owner = KafkaPrincipal(token.principal_type, token.principal_name)
    requester = (token.token_requester_principal_type, token.token_requester_principal_name)
    renewers = [(each.principal_type, each.principal_name) for each in token.renewers]
    return (
        me in (owner, requester, *renewers)
        or asking.sees(DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or asking.sees(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(owner))
    )


def check_describe_cluster(asking: Asking, body: Any) -> None:
    if body.include_cluster_authorized_operations:
        asking.amend(partial(_tell_of_cluster, asking))


def _tell_of_cluster(asking: Asking, response: Any) -> None:
    """The operations on the cluster; none of them without DESCRIBE."""
    bits = asking.authorizer.operations(asking.context, CLUSTER)
    response.cluster_authorized_operations = bits if bits & (1 << DESCRIBE) else 0


class TopicChecks:
    """The checks that must know which topics there are."""

    def __init__(self, cache: MetadataCache, auto_create: bool) -> None:
        self.cache = cache
        self.auto_create = auto_create

    def check_metadata(self, asking: Asking, body: MetadataRequest) -> Response | None:
        is_old = asking.context.api_version < NULL_FOR_ALL_VERSION
        if body.topics is None or (is_old and not body.topics):
            asking.amend(partial(_show_topics, asking))
        elif not is_too_old_for_ids(asking.context, body):  # which refuses all of it
            self._check_named(asking, body, body.topics)
        if body.include_topic_authorized_operations:
            asking.amend(partial(_tell_of_topics, asking))
        if body.include_cluster_authorized_operations:
            asking.amend(partial(_tell_of_cluster, asking))
        return None

    def _check_named(
        self, asking: Asking, body: MetadataRequest, topics: list[MetadataRequestTopic]
    ) -> None:
        left, denied = split(
            topics,
            lambda topic: (
                self._may_describe(asking, topic)
                and not self._is_creation_denied(asking, body, topic)
            ),
        )
        if not denied:
            return
        body.topics = left
        lines = list(map(denials.topic_not_told, denied))

        def change(response: MetadataResponse) -> None:
            if not left:
                response.topics = []  # an old request that names none asks for all
            response.topics.extend(lines)

        asking.amend(change)

    def with_names(self, key: ApiKey) -> Check:
        """The check of requests that may give topics by their ids."""

        def check_named(asking: Asking, body: Any) -> Outcome:
            if has_ids(asking.context, key):
                for topics in lists_of_topics(body):
                    name_topics(topics or (), self.cache.topic_name)
            return CHECKS[key](asking, body)

        return check_named

    def _may_describe(self, asking: Asking, topic: MetadataRequestTopic) -> bool:
        name = topic.name if topic.topic_id == NO_UUID else self.cache.topic_name(topic.topic_id)
        return name is None or asking.may(DESCRIBE, TOPIC, name)

    def _is_creation_denied(
        self, asking: Asking, body: MetadataRequest, topic: MetadataRequestTopic
    ) -> bool:
        """Whether the topic would be created by this request, which may not create it."""
        if not self.auto_create or not topic.name or topic.topic_id != NO_UUID:
            return False
        has_flag = asking.context.api_version >= FIRST_VERSION_WITH_CREATION_FLAG
        is_wanted = body.allow_auto_topic_creation or not has_flag
        if not is_wanted or self.cache.topic(topic.name) is not None:
            return False
        return not (asking.has(CREATE, *CLUSTER) or asking.may(CREATE, TOPIC, topic.name))

    def check_describe_topic_partitions(
        self, asking: Asking, body: DescribeTopicPartitionsRequest
    ) -> Outcome:
        asking.amend(partial(_tell_of_topics, asking))
        if not body.topics:
            return self._list_topics(asking, body)
        return keep(
            asking,
            body,
            "topics",
            "topics",
            may_on_topic(asking, DESCRIBE),
            denials.topic_not_described,
        )

    def _list_topics(
        self, asking: Asking, body: DescribeTopicPartitionsRequest
    ) -> Work[DescribeTopicPartitionsResponse | None]:
        """Name the topics that the client may see, from the cursor on."""
        first = body.cursor.topic_name if body.cursor is not None else ""
        topics = [each for each in self.cache.topics() if each.name >= first]
        seen = yield from asking.seen(DESCRIBE, TOPIC, topics, "name")
        if not seen:
            return DescribeTopicPartitionsResponse()
        body.topics = [TopicRequest(name=each.name) for each in seen]
        if body.cursor is not None and seen[0].name != first:  # whose topic is gone
            index = min(0, body.cursor.partition_index)
            body.cursor = Cursor(topic_name=seen[0].name, partition_index=index)
        return None

    def check_delete_topics(self, asking: Asking, body: DeleteTopicsRequest) -> Outcome:
        if asking.context.api_version >= DELETE_BY_ID_VERSION:
            return keep(
                asking,
                body,
                "topics",
                "responses",
                lambda topic: self._may_delete(asking, topic),
                lambda topic: self._not_deleted(asking, topic),
            )
        return keep(
            asking,
            body,
            "topic_names",
            "responses",
            lambda name: asking.may(DELETE, TOPIC, name),
            denials.topic_not_deleted,
        )

    def _name(self, topic: DeleteTopicState) -> str | None:
        if topic.name is not None:
            return topic.name
        return self.cache.topic_name(topic.topic_id)

    def _may_delete(self, asking: Asking, topic: DeleteTopicState) -> bool:
        name = self._name(topic)
        return name is None or asking.may(DELETE, TOPIC, name)

    def _not_deleted(self, asking: Asking, topic: DeleteTopicState) -> DeletableTopicResult:
        """Without DESCRIBE, the name of a topic that was given by its id stays hidden."""
        name = self._name(topic)
        if topic.name is None and name is not None and not asking.sees(DESCRIBE, TOPIC, name):
            name = None
        return DeletableTopicResult(
            name=name,
            topic_id=topic.topic_id,
            error_code=TOPIC_DENIED,
            error_message=denials.MESSAGE,
        )


def _tell_of_topics(asking: Asking, response: Any) -> Work[None]:
    for number, topic in enumerate(response.topics, 1):
        if not topic.error_code:
            bits = asking.authorizer.operations(asking.context, Resource(TOPIC, topic.name))
            topic.topic_authorized_operations = bits
        if not number % (NAMES_IN_A_SLICE // len(TOLD_OPERATIONS[TOPIC])):
            yield


CHECKS: Final[Mapping[ApiKey, Check]] = {
    ApiKey.PRODUCE: check_produce,
    ApiKey.FETCH: check_fetch,
    ApiKey.LIST_OFFSETS: of_topics(DESCRIBE, denials.offsets_not_listed),
    ApiKey.LEADER_AND_ISR: of_brokers,
    ApiKey.STOP_REPLICA: of_brokers,
    ApiKey.UPDATE_METADATA: of_brokers,
    ApiKey.CONTROLLED_SHUTDOWN: of_brokers,
    ApiKey.OFFSET_COMMIT: check_offset_commit,
    ApiKey.OFFSET_FETCH: check_offset_fetch,
    ApiKey.FIND_COORDINATOR: check_find_coordinator,
    ApiKey.JOIN_GROUP: of_group(READ),
    ApiKey.HEARTBEAT: of_group(READ),
    ApiKey.LEAVE_GROUP: of_group(READ),
    ApiKey.SYNC_GROUP: of_group(READ),
    ApiKey.DESCRIBE_GROUPS: check_described_groups(denials.group_not_described, "groups"),
    ApiKey.LIST_GROUPS: shown(DESCRIBE, GROUP, "groups", "group_id", whole=True),
    ApiKey.SASL_HANDSHAKE: free,
    ApiKey.API_VERSIONS: free,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: free,
    ApiKey.PUSH_TELEMETRY: free,
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: of_cluster(DESCRIBE_CONFIGS),
    ApiKey.CREATE_TOPICS: check_create_topics,
    ApiKey.DELETE_RECORDS: of_topics(DELETE, denials.records_not_deleted),
    ApiKey.INIT_PRODUCER_ID: check_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: check_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: check_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: check_add_offsets_to_txn,
    ApiKey.END_TXN: check_end_txn,
    ApiKey.WRITE_TXN_MARKERS: check_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: check_txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: of_cluster(DESCRIBE),
    ApiKey.CREATE_ACLS: to_cluster(ALTER, denials.acls_not_created),
    ApiKey.DELETE_ACLS: to_cluster(ALTER, denials.acls_not_deleted),
    ApiKey.DESCRIBE_CONFIGS: of_configs(DESCRIBE_CONFIGS, "results", DescribeConfigsResult),
    ApiKey.ALTER_CONFIGS: of_configs(ALTER_CONFIGS, "responses", AlterConfigsResourceResponse),
    ApiKey.ALTER_REPLICA_LOG_DIRS: to_cluster(ALTER, denials.log_dirs_not_altered),
    ApiKey.DESCRIBE_LOG_DIRS: check_describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: free,
    ApiKey.CREATE_DELEGATION_TOKEN: check_create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: free,  # the handler asks for the owner or a renewer
    ApiKey.EXPIRE_DELEGATION_TOKEN: free,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: check_describe_tokens,
    ApiKey.CREATE_PARTITIONS: of_topics(ALTER, denials.partitions_not_created, "results"),
    ApiKey.DELETE_GROUPS: of_groups(DELETE, "groups_names", "results", denials.group_not_deleted),
    ApiKey.ELECT_LEADERS: check_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: of_configs(
        ALTER_CONFIGS, "responses", IncrementalAlterConfigsResourceResponse
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: of_cluster(ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: of_cluster(DESCRIBE),
    ApiKey.OFFSET_DELETE: check_offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: of_cluster(DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: to_cluster(ALTER_CONFIGS, denials.quotas_not_altered),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: of_cluster(DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: to_cluster(ALTER, denials.scram_users_not_altered),
    ApiKey.ALTER_PARTITION: of_brokers,
    ApiKey.UPDATE_FEATURES: of_cluster(ALTER),
    ApiKey.DESCRIBE_CLUSTER: check_describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: of_topics(READ, denials.producers_not_told),
    ApiKey.DESCRIBE_TRANSACTIONS: check_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: check_list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: check_consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: check_consumer_groups,
}
"""What each API asks for; `TopicChecks` has the rest."""


def lists_of_topics(body: Any) -> list[list[Any] | None]:
    """The lists in a request that may give topics by their ids."""
    if isinstance(body, OffsetFetchRequest):
        return [group.topics for group in body.groups]
    return [body.topic_data if isinstance(body, ProduceRequest) else body.topics]


def checks(cache: MetadataCache, auto_create: bool) -> Mapping[ApiKey, Check]:
    """The table: every API, and the rights that it asks for."""
    topics = TopicChecks(cache, auto_create)
    return {
        **CHECKS,
        **{key: topics.with_names(key) for key in FIRST_VERSIONS},
        ApiKey.METADATA: topics.check_metadata,
        ApiKey.DELETE_TOPICS: topics.check_delete_topics,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.check_describe_topic_partitions,
    }


def put_checks(apis: Apis, authorizer: Authorizer, cache: MetadataCache, auto_create: bool) -> None:
    """Put its check before every handler.

    Raises:
        LocalProtocolError: an API is served that has no row in the table.
    """
    table = checks(cache, auto_create)
    for key, _, _ in apis.supported():
        check = table.get(ApiKey(key))
        if check is None:
            raise LocalProtocolError(f"{ApiKey(key).name} is served without a check of rights")
        apis.wrap(ApiKey(key), partial(_checked, authorizer, check))
    authorizer.on_denial = apis.on_denial


def _has_stayed(context: RequestContext) -> bool:
    return not context.connection.is_closing


def _checked(authorizer: Authorizer, check: Check, handler: Handler) -> Handler:
    def handle(context: RequestContext, body: Any) -> Answer:
        outcome = check(Asking(authorizer, context), body)
        if outcome is not None and isinstance(outcome, Generator):  # which takes long to ask None
            found = authorizer.runtime.slices.begin(outcome, partial(_has_stayed, context))
            if isinstance(found, Coroutine):
                return rest(found, context, body)
            outcome = found
        return handler(context, body) if outcome is None else outcome

    async def rest(
        checking: Awaitable[Response | None], context: RequestContext, body: Any
    ) -> Response | None:
        refusal = await checking
        answer = handler(context, body) if refusal is None else refusal
        return await answer if isinstance(answer, Coroutine) else answer

    return handle
