"""The audit topic: what is noted, in what order it is written, and that no request waits for it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from apis_world import Client

import ottla
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.audit.audit import Audit
from ottla.extensions.audit.audit_log import CLOSE_TIMEOUT_MS, MAX_RETRY_MS, AuditLog
from ottla.extensions.audit.audit_record import (
    ADMINISTRATIVE,
    MAX_LETTERS,
    MAX_LISTED,
    MAX_TEXT,
    AuditRecord,
)
from ottla.protocol import (
    acls,
    configs,
    delegation_tokens,
    log_dirs,
    offsets,
    reassignments,
    scram_users,
    topics,
)
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.group import DeleteGroupsRequest
from ottla.protocol.header import RequestHeader
from ottla.security.acls import AclOperation, Resource, ResourceType
from ottla.security.principal import KafkaPrincipal
from ottla.server.apis import Apis
from ottla.testing import InProcessBroker, InProcessCluster, mock_runtime, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_S = 60
EVE = KafkaPrincipal.user("eve")
ORDERS = Resource(ResourceType.TOPIC, "orders")
AUDIT = Resource(ResourceType.TOPIC, "audit")
MAX_QUEUED = 3


class World:
    """An audit log whose records go to a list, or nowhere while `error` says why."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.batches: list[list[dict[str, Any]]] = []
        self.attempts = 0
        self.error: KafkaError | None = None
        self.max_bytes = 10**9
        self.audit = AuditLog(self.runtime, "audit", 7, self.write, MAX_QUEUED)

    async def write(self, values: list[bytes]) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        if sum(map(len, values)) > self.max_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        self.batches.append([json.loads(value) for value in values])

    @property
    def records(self) -> list[dict[str, Any]]:
        """What is in the topic."""
        self.runtime.scheduler.run_ready()
        return [record for batch in self.batches for record in batch]

    def deny(self, context: SimpleNamespace | None = None, resource: Resource = ORDERS) -> None:
        who = self.context() if context is None else context
        self.audit.note_denial(who, AclOperation.READ, resource, served=False)

    def context(self, key: ApiKey = ApiKey.FETCH, client_id: str = "app") -> SimpleNamespace:
        """A request of eve's."""
        context = Context()
        context.principal, context.client_id, context.client_host = EVE, client_id, "10.0.0.1"
        context.listener_name, context.header = "SASL_SSL", RequestHeader(int(key), 0, 1, client_id)
        return context

    def ask(self, body: Any, handler: Any) -> Any:
        """What the audited handler of the request's API does."""
        key = body.api_key
        audited = self.audit._audited(ADMINISTRATIVE[key], handler)
        return audited(self.context(key), body)


class Context(SimpleNamespace):
    """Of one request: equal to no other, as a real one."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


@pytest.fixture
def world() -> World:
    """Nothing noted yet."""
    return World()


DELETE = topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name="orders")])


def test_administrative_request_has_a_record(world):
    """Who, from where, what, about what, and how it ended."""
    answer = topics.DeleteTopicsResponse(
        responses=[topics.DeletableTopicResult(name="orders", error_code=3)]
    )

    assert world.ask(DELETE, lambda context, body: answer) is answer
    assert world.records == [
        {
            "time": world.runtime.clock.now_ms(),
            "broker": 7,
            "principal": "User:eve",
            "client_id": "app",
            "host": "10.0.0.1",
            "listener": "SASL_SSL",
            "api": "DeleteTopics",
            "resources": ["Topic:orders"],
            "decision": "allowed",
            "denied": [],
            "errors": ["UNKNOWN_TOPIC_OR_PARTITION"],
        }
    ]


def test_handler_that_answers_later_has_one_record_at_its_end(world):
    """With what was denied meanwhile."""

    async def handle(context: Any, body: Any) -> topics.DeleteTopicsResponse:
        await asyncio.sleep(0)
        assert world.batches == []
        world.deny(context)
        return topics.DeleteTopicsResponse()

    world.runtime.scheduler.run(world.ask(DELETE, handle))
    (record,) = world.records

    assert (record["decision"], record["denied"]) == ("denied", ["Read Topic:orders"])
    assert record["resources"] == ["Topic:orders"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (KafkaError(ErrorCode.NOT_CONTROLLER, "x"), "NOT_CONTROLLER"),
        (ZeroDivisionError(), "UNKNOWN_SERVER_ERROR"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_handler_that_fails_has_its_record(world, error, name, is_late):
    """A failed handler has its record, and fails as it would without."""

    def fail(context: Any, body: Any) -> None:
        raise error

    async def fail_late(context: Any, body: Any) -> None:
        raise error

    async def ask() -> None:
        await world.ask(DELETE, fail_late if is_late else fail)

    with pytest.raises(type(error)):
        world.runtime.scheduler.run(ask())
    (record,) = world.records
    assert record["errors"] == [name]


BODIES = [
    (
        topics.CreateTopicsRequest(topics=[topics.CreatableTopic(name="a")]),
        ["Topic:a"],
    ),
    (topics.DeleteTopicsRequest(topic_names=["a"]), ["Topic:a"]),
    (
        topics.DeleteRecordsRequest(topics=[topics.DeleteRecordsTopic(name="a")]),
        ["Topic:a"],
    ),
    (
        topics.CreatePartitionsRequest(topics=[topics.CreatePartitionsTopic(name="a")]),
        ["Topic:a"],
    ),
    (
        acls.CreateAclsRequest(
            creations=[
                acls.AclCreation(
                    resource_type=2,
                    resource_name="a",
                    resource_pattern_type=4,
                    principal="User:bob",
                    operation=3,
                    permission_type=3,
                )
            ]
        ),
        ["Topic:Prefixed:a (Allow Read to User:bob)"],
    ),
    (
        acls.DeleteAclsRequest(
            filters=[
                acls.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter=None,
                    pattern_type_filter=1,
                    principal_filter=None,
                    operation=1,
                    permission_type=1,
                )
            ]
        ),
        ["Topic:Any:* (Any Any to anybody)"],
    ),
    (
        configs.AlterConfigsRequest(
            resources=[
                configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=[configs.AlterableConfig(name="retention.ms", value="SESAME")],
                )
            ]
        ),
        ["Topic:a (retention.ms)"],
    ),
    (
        configs.IncrementalAlterConfigsRequest(
            resources=[
                configs.IncrementalAlterConfigsResource(
                    resource_type=99,
                    resource_name="0",
                    configs=[configs.IncrementalAlterableConfig(name="x", value="SESAME")],
                )
            ]
        ),
        ["99:0 (x)"],
    ),
    (
        log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                log_dirs.AlterReplicaLogDir(
                    path="/d", topics=[log_dirs.AlterReplicaLogDirTopic(name="a")]
                )
            ]
        ),
        ["Topic:a"],
    ),
    (reassignments.ElectLeadersRequest(topic_partitions=None), ["Cluster:kafka-cluster"]),
    (
        reassignments.ElectLeadersRequest(
            topic_partitions=[reassignments.ElectLeadersTopicPartitions(topic="a")]
        ),
        ["Topic:a"],
    ),
    (
        reassignments.AlterPartitionReassignmentsRequest(
            topics=[reassignments.ReassignableTopic(name="a")]
        ),
        ["Topic:a"],
    ),
    (DeleteGroupsRequest(groups_names=["g"]), ["Group:g"]),
    (offsets.OffsetDeleteRequest(group_id="g"), ["Group:g"]),
    (
        configs.AlterClientQuotasRequest(
            entries=[
                configs.QuotaAlteration(
                    entity=[
                        configs.QuotaEntity(entity_type="user", entity_name="u"),
                        configs.QuotaEntity(entity_type="client-id", entity_name=None),
                    ]
                )
            ]
        ),
        ["user=u,client-id=None"],
    ),
    (
        scram_users.AlterUserScramCredentialsRequest(
            deletions=[scram_users.ScramCredentialDeletion(name="u")],
            upsertions=[
                scram_users.ScramCredentialUpsertion(name="u", salted_password=b"SESAME"),
                scram_users.ScramCredentialUpsertion(name="v"),
            ],
        ),
        ["User:u", "User:v"],
    ),
    (
        UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="x")]),
        ["Feature:x"],
    ),
    (
        delegation_tokens.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="u"
        ),
        ["User:u"],
    ),
    (delegation_tokens.CreateDelegationTokenRequest(), []),
    (delegation_tokens.RenewDelegationTokenRequest(hmac=b"SESAME"), []),
    (delegation_tokens.ExpireDelegationTokenRequest(hmac=b"SESAME"), []),
]


@pytest.mark.parametrize(
    ("body", "expected"), [pytest.param(*row, id=type(row[0]).__name__) for row in BODIES]
)
def test_resources_of_each_request_are_named(world, body, expected):
    """Without values of settings and secrets."""
    world.ask(body, lambda context, body: None)
    (record,) = world.records

    assert record["resources"] == expected
    assert "SESAME" not in str(record)


def test_every_administrative_api_is_checked_here():
    """One that is added needs its row above."""
    assert {body.api_key for body, _ in BODIES} == ADMINISTRATIVE.keys()


def test_denials_of_a_request_are_in_one_record(world):
    """Those of another request in another one."""
    context = world.context()
    world.deny(context)
    world.deny(context)
    world.deny(context, Resource(ResourceType.GROUP, "g"))
    world.deny()

    first, second = world.records
    assert first["denied"] == ["Read Topic:orders", "Read Group:g"]
    assert (first["api"], first["decision"]) == ("Fetch", "denied")
    assert second["denied"] == ["Read Topic:orders"]
    world.deny(context)
    assert len(world.records) == 3


def test_denial_that_was_only_logged_says_so(world):
    """Logged denials have records, except reads of the audit topic, which would never end."""
    world.audit.note_denial(world.context(), AclOperation.READ, ORDERS, served=True)
    world.audit.note_denial(world.context(), AclOperation.READ, AUDIT, served=True)

    (record,) = world.records
    assert (record["decision"], record["denied"]) == ("logged", ["Read Topic:orders"])
    world.deny(resource=AUDIT)
    assert world.records[-1]["decision"] == "denied"


def test_who_poses_as_a_broker_has_a_record(world):
    """On a listener that brokers do not use."""
    world.audit.note_refusal(world.context(ApiKey.STOP_REPLICA))

    (record,) = world.records
    assert record["denied"] == ["ClusterAction Cluster:kafka-cluster"]
    assert (record["api"], record["decision"]) == ("StopReplica", "denied")


def test_refused_login_has_a_record(world):
    """With the mechanism and the reason."""
    connection = SimpleNamespace(principal=EVE, client_host="10.0.0.1", listener_name="SASL_SSL")
    world.audit.note_login(connection, "PLAIN", "Invalid username or password")
    world.audit.note_login(connection, "", "not a request of Kafka's protocol")

    assert [record["denied"] for record in world.records] == [
        ["PLAIN: Invalid username or password"],
        ["no mechanism: not a request of Kafka's protocol"],
    ]
    assert world.records[0]["api"] == "SaslAuthenticate"


def test_what_a_client_makes_up_cannot_fill_the_topic(world):
    """Long texts and lists are cut, and text that is no Unicode is replaced."""
    body = DeleteGroupsRequest(groups_names=["g" * 10_000] * (MAX_LISTED + 5))
    world.audit._audited(ADMINISTRATIVE[ApiKey.DELETE_GROUPS], lambda context, body: None)(
        world.context(ApiKey.DELETE_GROUPS, client_id="\udc80" * 10_000), body
    )
    (record,) = world.records

    assert len(record["client_id"]) == MAX_TEXT + 3
    assert record["resources"][-1] == "and 105 in all"
    assert len(record["resources"][0]) == MAX_TEXT + 3
    letters = sum(map(len, record["resources"]))
    assert MAX_LETTERS <= letters < MAX_LETTERS + MAX_TEXT


def test_denied_names_take_no_more_than_their_letters(world):
    """Ten thousand records of a hundred long names each were half a gigabyte that waits."""
    context = world.context()
    for number in range(MAX_LISTED):
        world.deny(context, Resource(ResourceType.GROUP, f"{number}" + "g" * 10_000))
    (record,) = world.records

    letters = sum(map(len, record["denied"]))
    assert MAX_LETTERS <= letters < MAX_LETTERS + MAX_TEXT + 3


def test_text_and_list_that_just_fit_are_whole(world):
    """Nothing says that there would be more."""
    names = ["g" * MAX_TEXT] + ["g"] * (MAX_LISTED - 1)
    world.ask(DeleteGroupsRequest(groups_names=names), lambda context, body: None)
    context = world.context()
    for number in range(MAX_LISTED + 5):
        world.deny(context, Resource(ResourceType.TOPIC, str(number)))
    whole, denied = world.records

    assert whole["resources"] == [f"Group:{'g' * MAX_TEXT}"[:MAX_TEXT] + "..."] + ["Group:g"] * (
        MAX_LISTED - 1
    )
    assert len(denied["denied"]) == MAX_LISTED
    context = world.context(client_id="c" * MAX_TEXT)
    world.deny(context)
    assert world.records[-1]["client_id"] == "c" * MAX_TEXT


def test_request_that_is_denied_again_after_its_record_was_written_has_another(world):
    """A fetch may wait for long, and the first record is not changed any more."""
    context = world.context()
    for _ in range(2):
        world.deny(context)
        assert world.records[-1]["denied"] == ["Read Topic:orders"]

    assert len(world.records) == 2


def test_topic_that_takes_nothing_is_named_once_in_the_log(world, caplog):
    """It is asked again and again."""
    world.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "x")
    world.deny()
    for _ in range(10):
        world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert world.attempts > 3
    assert caplog.text.count("audit records cannot be written") == 1


def test_single_record_that_is_too_large_is_lost(world):
    """It cannot be cut; the next one is written."""
    world.max_bytes = 10
    world.deny()
    for _ in range(3):
        world.runtime.scheduler.advance(MAX_RETRY_MS)
    assert world.audit.dropped_count == 1
    world.max_bytes = 10**6
    world.deny()
    world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert [each.get("missing") for each in world.records] == [None, 1]


def test_batch_that_cannot_be_written_now_is_not_lost(world):
    """However many records it has."""
    world.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "x")
    for _ in range(MAX_QUEUED):
        world.deny()
    for _ in range(5):
        world.runtime.scheduler.advance(MAX_RETRY_MS)
    world.error = None
    world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert [len(batch) for batch in world.batches] == [MAX_QUEUED]


def test_log_without_a_record_ends_at_once(world):
    """There is nothing that it would wait for."""
    world.runtime.scheduler.run(world.audit.close())

    assert world.attempts == 0


def test_records_are_kept_in_order_until_they_can_be_written(world):
    """Nothing is asked more often than the backoff says, and all of it goes in one batch then."""
    world.error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "x")
    for name in ("a", "b"):
        world.deny(resource=Resource(ResourceType.TOPIC, name))
    assert world.records == []
    assert world.attempts == 1

    world.error = None
    world.runtime.scheduler.advance(MAX_RETRY_MS)
    assert [record["denied"] for record in world.records] == [["Read Topic:a"], ["Read Topic:b"]]
    assert len(world.batches) == 1


def test_full_queue_drops_and_says_how_many(world, caplog):
    """The oldest are kept; the next batch tells how many are missing, once."""
    world.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "x")
    for _ in range(MAX_QUEUED + 2):
        world.deny()
    world.runtime.scheduler.run_ready()
    assert world.audit.dropped_count == 2
    assert "audit records are dropped" in caplog.text

    world.error = None
    world.runtime.scheduler.advance(MAX_RETRY_MS)
    assert len(world.records) == MAX_QUEUED + 1
    assert world.records[-1] == {
        "time": world.runtime.clock.now_ms(),
        "broker": 7,
        "missing": 2,
    } | {"time": world.records[-1]["time"]}
    world.deny()
    assert "missing" not in world.records[-1]


def test_flood_of_denials_does_not_hide_what_administrators_do(world):
    """Their requests have room of their own in the queue."""
    world.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "x")
    for _ in range(MAX_QUEUED + 5):
        world.deny()
    world.ask(DELETE, lambda context, body: topics.DeleteTopicsResponse())
    world.runtime.scheduler.run_ready()
    assert world.audit.dropped_count == 5
    world.error = None
    for _ in range(3):
        world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert [each["resources"] for each in world.records if "missing" not in each][MAX_QUEUED:] == [
        ["Topic:orders"]
    ]


@pytest.mark.parametrize("how", ["denied", "error", "raised"])
def test_flood_of_failed_changes_does_not_hide_one_that_was_made(world, how):
    """Whoever has no right to it can ask for changes as well, and for the end of no token."""
    world.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "x")
    renew = delegation_tokens.RenewDelegationTokenRequest(hmac=b"x")

    def fail(context, body):
        if how == "denied":
            world.deny(context)
        if how == "raised":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "x")
        return delegation_tokens.RenewDelegationTokenResponse(error_code=int(how == "error"))

    for _ in range(2 * MAX_QUEUED + 5):
        with suppress(KafkaError):
            world.ask(renew, fail)
    world.ask(DELETE, lambda context, body: topics.DeleteTopicsResponse())
    world.error = None
    for _ in range(5):
        world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert "DeleteTopics" in [each.get("api") for each in world.records]


def test_batch_that_is_too_large_is_cut(world):
    """Until it fits; nothing is lost."""
    world.max_bytes = 400
    for _ in range(MAX_QUEUED):
        world.deny()
    world.runtime.scheduler.run_ready()
    for _ in range(20):
        world.runtime.scheduler.advance(MAX_RETRY_MS)

    assert len(world.records) == MAX_QUEUED
    assert world.audit.dropped_count == 0


def test_record_that_is_never_taken_keeps_no_other_back(world, caplog):
    """It is counted as lost."""
    world.error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x")
    world.deny()
    world.runtime.scheduler.run_ready()
    assert world.audit.dropped_count == 1
    assert "1 audit records are lost" in caplog.text

    world.error = None
    world.deny()
    world.runtime.scheduler.advance(MAX_RETRY_MS)
    assert [record.get("missing") for record in world.records] == [None, 1]


def test_record_that_cannot_be_written_down_keeps_no_other_back(world, monkeypatch, caplog):
    """Those before it and behind it are written; it is counted as lost."""
    encode = AuditRecord.encode
    records = []

    def fail_for_one(record):
        if all(each is not record for each in records):
            records.append(record)
        if len(records) > 1 and record is records[1]:
            raise ValueError("planted")
        return encode(record)

    monkeypatch.setattr(AuditRecord, "encode", fail_for_one)
    for _ in range(3):
        world.deny()
    world.runtime.scheduler.run_ready()

    assert len([each for each in world.records if "missing" not in each]) == 2
    assert world.audit.dropped_count == 1
    assert "1 audit records are lost" in caplog.text


def test_close_writes_what_waits(world):
    """For a second at most."""
    world.deny()
    world.runtime.scheduler.run(world.audit.close())
    assert len(world.records) == 1

    world.error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "x")
    world.deny()
    began_ms = world.runtime.clock.monotonic_ms()
    world.runtime.scheduler.run(world.audit.close())
    assert world.runtime.clock.monotonic_ms() - began_ms == CLOSE_TIMEOUT_MS
    attempts = world.attempts
    world.runtime.scheduler.advance(2 * MAX_RETRY_MS)
    assert world.attempts == attempts


def test_apis_are_watched():
    """Administrative ones and refused logins; all others stay as they are."""
    world = World()
    apis = Apis(world.runtime)

    def handler(context: Any, body: Any) -> None:
        return None

    apis.register(
        SimpleNamespace(apis=lambda: dict.fromkeys((ApiKey.DELETE_TOPICS, ApiKey.FETCH), handler))
    )
    world.audit.watch(apis)

    assert apis._apis[ApiKey.FETCH].handler is handler
    assert apis._apis[ApiKey.DELETE_TOPICS].handler is not handler
    assert apis.logins.on_refused == world.audit.note_login
    assert apis.on_refused_request == world.audit.note_refusal
    assert apis.on_denial == [world.audit.note_denial]


# With brokers


def read_audit(servers: str, is_all: Callable[[list[Any]], bool]) -> list[dict[str, Any]]:
    """The records of the topic `audit`, from its start until they are all."""
    found: list[dict[str, Any]] = []
    with ottla.Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition("audit", 0)])
        wait_until(
            lambda: is_all(found),
            "audit records",
            LIMIT_S,
            meanwhile=lambda: found.extend(json.loads(r.value) for r in consumer.poll(200)),
        )
    return found


def test_broker_writes_its_audit_topic():
    """The topic is made with the first record; a restart goes on in it."""
    with InProcessBroker(ottla_audit_topic="audit", auto_create_topics_enable=False) as broker:
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([ottla.NewTopic("t")])
            admin.delete_topics(["t"])
        records = read_audit(broker.bootstrap_servers, lambda found: len(found) == 2)

    assert [(r["api"], r["resources"]) for r in records] == [
        ("CreateTopics", ["Topic:t"]),
        ("DeleteTopics", ["Topic:t"]),
    ]
    assert {r["principal"] for r in records} == {"User:ANONYMOUS"}
    assert {r["host"] for r in records} == {"127.0.0.1"}


def test_request_is_denied_on_its_way_into_the_topic():
    """By the authorizer, of a request that is not administrative."""
    with InProcessBroker(
        ottla_audit_topic="audit",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:ANONYMOUS",
    ) as broker:

        async def ask() -> None:
            from ottla.protocol.header import encode_request
            from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic

            body = MetadataRequest(topics=[MetadataRequestTopic(name="secret")])
            frame = encode_request(4, 1, "app", body)[4:]
            Client(EVE).hand_over(broker.broker.apis, bytearray(frame))

        broker.run(ask())
        (record,) = read_audit(broker.bootstrap_servers, lambda found: len(found) == 1)

    assert (record["principal"], record["client_id"]) == ("User:eve", "app")
    assert record["denied"] == ["Describe Topic:secret"]


def test_brokers_that_lead_no_partition_ask_one_that_does():
    """Each broker's records arrive, though the topic has one partition with one replica."""
    with InProcessCluster(2, ottla_audit_topic="audit", num_partitions=1) as cluster:
        servers = ",".join(f"localhost:{port}" for port in cluster.ports.values())
        for port in cluster.ports.values():
            with ottla.Admin(f"localhost:{port}") as admin:
                admin.describe_cluster()
        for broker_id in cluster.ports:
            audit = cluster.broker(broker_id).find(Audit).log

            async def note(audit: AuditLog = audit) -> None:
                audit.note_refusal(World().context(ApiKey.STOP_REPLICA))

            cluster.run(note())

        def is_all(found: list[dict[str, Any]]) -> bool:
            return {each["broker"] for each in found if each["denied"]} == set(cluster.ports)

        records = read_audit(servers, is_all)

    assert len({each["broker"] for each in records}) == 2
