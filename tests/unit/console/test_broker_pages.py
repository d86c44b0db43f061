"""The pages of brokers: disks and moves, settings with their origins, replicas and versions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla import AlterConfigOp, ConfigResource
from ottla.clients.admin.descriptions import ConfigEntry, ConfigSynonym
from ottla.clients.admin.log_dirs import LogDirAdmin, LogDirDescription, ReplicaInfo
from ottla.clients.admin.topics import PartitionReassignment, ReassignmentAdmin
from ottla.console.broker_pages import move_line, setting_line, version_rows
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import ConfigSource, TopicPartition

MOVED = TopicPartition("moved", 0)


def test_brokers_have_leaders_and_disks(world: LagWorld):
    """One request for the directories, and one for the moves."""
    world.add_topic("leaders", 3)
    world.write(TopicPartition("leaders", 0), 10)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/brokers.json")).json
        (broker,) = data["brokers"]
        assert broker["is_controller"] is True
        assert broker["leaders"] == broker["replicas"] >= 3
        (directory,) = broker["dirs"]
        assert directory["path"] == "/data"
        assert directory["used"] > 0
        assert data["moves"] == []
        assert {"DescribeLogDirs", "ListPartitionReassignments"} <= {
            each["api"] for each in data["asked"]
        }
        assert '<a href="/broker?id=0">Broker 0</a>' in (await visitor.get("/brokers")).text

    visit(world.servers, walk)


def test_broker_has_settings_with_their_origins(world: LagWorld):
    """Those that are not defaults first; the others are found by name."""
    change = [AlterConfigOp("log.cleaner.threads", "2")]
    world.admin.incremental_alter_configs({ConfigResource.broker(0): change})

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/broker.json?id=0")).json
        settings = {each["name"]: each for each in data["settings"]}
        assert settings["log.cleaner.threads"]["source"] == "dynamic broker"
        assert settings["log.cleaner.threads"]["synonyms"][-1] == "1 (default)"
        assert settings["broker.id"]["source"] == "static broker"
        assert "log.roll.hours" not in settings
        found = (await visitor.get("/broker.json?id=0&q=log.roll.h")).json["settings"]
        assert [each["name"] for each in found] == ["log.roll.hours"]
        every = (await visitor.get("/broker.json?id=0&all=1")).json
        assert len(every["settings"]) == every["total"] > 100

    visit(world.servers, walk)


def test_broker_has_its_largest_replicas(world: LagWorld):
    """The largest first, with their role."""
    small, large = world.add_topic("small"), world.add_topic("large")
    world.write(small[0], 1)
    world.write(large[0], 200)

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/broker.json?id=0&part=replicas")).json
        names = [each["topic"] for each in data["replicas"]]
        assert names.index("large") < names.index("small")
        assert {each["role"] for each in data["replicas"]} == {"leader"}
        assert (await visitor.get("/broker?id=0&part=replicas")).status == 200

    visit(world.servers, walk)


def test_broker_that_does_not_live_is_not_there(world: LagWorld):
    """The live ones are named."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/broker.json?id=7")
        assert (answer.status, answer.json["near"]) == (404, ["broker 0"])
        assert (await visitor.get("/broker")).status == 404
        assert (await visitor.get("/broker?id=0&part=roof")).status == 400

    visit(world.servers, walk)


def test_versions_are_those_that_brokers_have_told(world: LagWorld):
    """They are known of each connection; no request is made for them."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/brokers/versions.json")).json
        rows = {each["api"]: each for each in data["rows"]}
        low, high = rows["Fetch"]["versions"]["0"]
        assert low < high
        assert data["differ"] == 0
        assert "The lowest and the highest version" in (await visitor.get("/brokers/versions")).text

    visit(world.servers, walk)


def test_versions_that_differ_come_first():
    """An API that one broker does not have differs as well."""
    rows = version_rows({1: {0: (0, 9), 1: (0, 4)}, 2: {0: (0, 9), 1: (0, 5), 9999: (0, 0)}})

    assert [(row["api"], row["differs"]) for row in rows] == [
        ("Fetch", True),
        ("API 9999", True),
        ("Produce", False),
    ]
    assert rows[1]["versions"] == {"1": None, "2": (0, 0)}


def dirs(size: int) -> dict[str, LogDirDescription]:
    return {"/d": LogDirDescription(ErrorCode.NONE, {MOVED: ReplicaInfo(size, 0, False)})}


def test_move_shows_how_much_is_left():
    """New replicas against the largest one; a broker that does not answer has nothing yet."""
    move = PartitionReassignment((1, 2, 3), (2, 3), (1,))
    line = move_line(MOVED, move, {1: dirs(1000), 2: dirs(500), 3: KafkaError(ErrorCode.NONE, "")})
    assert (line.bytes_left, line.done) == (1500, 0.25)
    unknown = move_line(MOVED, move, {})
    assert (unknown.bytes_left, unknown.done) == (None, None)


@pytest.mark.parametrize("refuses", [False, True])
def test_moves_are_listed_where_brokers_can(world: LagWorld, monkeypatch, refuses):
    """Older ones cannot, which is no error."""

    async def listed(*_: object) -> dict[TopicPartition, PartitionReassignment]:
        if refuses:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "too old")
        return {MOVED: PartitionReassignment((0, 1), (1,), ())}

    monkeypatch.setattr(ReassignmentAdmin, "list_partition_reassignments", listed)

    async def walk(visitor: Visitor) -> None:
        page = (await visitor.get("/brokers")).text
        assert ("moved-0" in page) is not refuses

    visit(world.servers, walk)


def test_sensitive_setting_is_hidden():
    """Neither its value nor those of its synonyms is there."""
    synonym = ConfigSynonym("ssl.key.password", "secret", ConfigSource.STATIC_BROKER_CONFIG)
    entry = ConfigEntry(
        "listener.name.tls.ssl.key.password",
        None,
        is_sensitive=True,
        source=ConfigSource.STATIC_BROKER_CONFIG,
        synonyms=[synonym],
    )
    line = setting_line(entry)

    assert line.value == "(hidden)"
    assert line.synonyms == ["ssl.key.password=(hidden) (static broker)"]


def test_directory_that_has_failed_is_named(world: LagWorld, monkeypatch):
    """With its error; a broker that does not answer has a note in its place."""
    failed = LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {})
    answers = SimpleNamespace(found={"/broken": failed})

    async def described(*_: object) -> dict[int, object]:
        return {0: answers.found}

    monkeypatch.setattr(LogDirAdmin, "describe_log_dirs", described)

    async def walk(visitor: Visitor) -> None:
        page = (await visitor.get("/brokers")).text
        assert ErrorCode.KAFKA_STORAGE_ERROR.sentence in page
        answers.found = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        assert "Its directories are not known: no answer" in (await visitor.get("/brokers")).text

    visit(world.servers, walk)
