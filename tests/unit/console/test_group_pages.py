"""The pages of groups: the list, one group with the causes of its lag, and its deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla.clients.admin.descriptions import GroupListing
from ottla.clients.admin.groups import GroupAdmin
from ottla.console.console_cluster import ConsoleCluster
from ottla.console.group_pages import PlotPoint, carried, heat, thinned, trend_per_s
from ottla.console.lag_collector import LagCollector
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.protocol.message import Request
from ottla.structs import TopicPartition, replace


@pytest.fixture
def late(world: LagWorld) -> LagWorld:
    """Group `late/er` has read 4 of 10 records of one partition; `done` has read all."""
    slashed, finished = world.add_topic("late", 2), world.add_topic("finished")
    world.write(slashed[0], 10)
    world.write(finished[0], 3)
    world.admin.alter_group_offsets("late/er", {slashed[0]: 4, slashed[1]: 0})
    world.admin.alter_group_offsets("done", {finished[0]: 3})
    yield world
    world.admin.delete_topics(["late", "finished"])
    left = {"late/er", "done"} & {each.group_id for each in world.admin.list_groups()}
    world.admin.delete_groups(left)


@pytest.mark.parametrize("path", ["/groups", "/flow"])
def test_groups_that_were_not_looked_at_again_are_not_live(late, path):
    """The page says since when, and why; once they were looked at, it does not."""

    async def walk(visitor: Visitor) -> None:
        first = (await visitor.get(f"{path}.json")).json
        assert (first["failure"], first["looked_ms"] > 0) == ("", True)
        assert "not looked at since" not in (await visitor.get(path)).text
        collector = visitor.app.cluster.part(LagCollector)
        collector.failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")
        then = (await visitor.get(f"{path}.json")).json
        assert (then["failure"], then["looked_ms"]) == ("no broker answers", first["looked_ms"])
        assert "not looked at since: no broker answers" in (await visitor.get(path)).text

    visit(late.servers, walk)


def test_list_has_no_lag_of_nothing_where_a_leader_does_not_answer(late, monkeypatch):
    """A group that has read all of its other partitions was shown with a lag of 0."""
    ends = ConsoleCluster.ends

    async def some(cluster, partitions, *isolation):
        found = await ends(cluster, partitions, *isolation)
        return {each: result for each, result in found.items() if each != TopicPartition("late", 0)}

    monkeypatch.setattr(ConsoleCluster, "ends", some)

    async def walk(visitor: Visitor) -> None:
        rows = (await visitor.get("/groups.json")).json["rows"]
        found = {row["group"]: (row["lag"], row["unknown"]) for row in rows}
        assert found == {"late/er": (None, 1), "done": (0, 0)}
        assert "That of 1 partition is not known" in (await visitor.get("/groups")).text

    visit(late.servers, walk)


def test_list_has_groups_with_most_lag_first(late):
    """State, topics and lag; by one look at all groups, and a description of those shown."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/groups.json")).json
        rows = [(row["group"], row["state"], row["topics"], row["lag"]) for row in data["rows"]]
        assert rows == [("late/er", "Empty", ["late"], 6), ("done", "Empty", ["finished"], 0)]
        assert [each["api"] for each in data["asked"]].count("OffsetFetch") == 1
        page = (await visitor.get("/groups")).text
        assert 'href="/group?id=late%2Fer"' in page
        assert ">not known yet</span>" in page  # since when it is behind, by a first look
        assert (await visitor.get("/groups.json?sort=name")).json["rows"][0]["group"] == "done"
        assert (await visitor.get("/groups.json?q=LATE")).json["found"] == 1
        for wrong in ("sort=colour", "from=-1", f"q={'a' * 300}"):
            assert (await visitor.get(f"/groups?{wrong}")).status == 400

    visit(late.servers, walk)


def test_group_has_its_causes_members_and_partitions(late):
    """The leading cause is on the page with its command; the twin has the numbers."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/group.json?id=late%2Fer")).json
        assert (data["state"], data["lag"], data["members"]) == ("Empty", 6, [])
        cause = data["causes"][0]
        assert cause["rule"] == "nobody_reads"
        assert cause["path"] == "/t/late/partitions"
        found = [(row["partition"], row["committed"], row["lag"]) for row in data["partitions"]]
        assert found == [(0, 4, 6), (1, 0, 0)]
        page = (await visitor.get("/group?id=late%2Fer")).text
        assert "nobody reads: the group is Empty and has no members; 6 records wait" in page
        assert "ottla lag late/er --explain" in page
        done = (await visitor.get("/group?id=done")).text
        assert "The group has read all there is." in done

    visit(late.servers, walk)


def test_reader_is_in_the_matrix(world):
    """With the lag of each of its partitions, and their heat."""
    read = world.add_topic("matrix", 2)
    world.write(read[0], 10)
    reader = world.read("matrixed", *read)
    world.commit(reader, {read[0]: 1, read[1]: 0})

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/group.json?id=matrixed")).json
        (member,) = data["members"]
        assert member["client"] == "matrixed-reader"
        assert member["has"] == {
            "matrix-0": {"lag": 9, "heat": 3},
            "matrix-1": {"lag": 0, "heat": 0},
        }
        page = (await visitor.get("/group?id=matrixed")).text
        assert "A group with members cannot be deleted" in page
        refused = await visitor.post("/group/delete", id="matrixed", name="matrixed")
        assert refused.status == 409
        assert "it still has members" in refused.text

    visit(world.servers, walk)


def test_names_of_others_are_escaped_on_their_pages(world):
    """Of a client, of its group, and in the forms; a form sends the name as it is."""
    (topic,) = world.add_topic("acted")
    world.read("acted\x1b[2J", topic)

    async def walk(visitor: Visitor) -> None:
        for path in ("/groups", "/group?id=acted%1B%5B2J", "/group/reset?id=acted%1B%5B2J"):
            page = await visitor.get(path)
            assert page.status == 200
            assert "\x1b" not in page.text
        page = (await visitor.get("/group?id=acted%1B%5B2J")).text
        assert "acted\\x1b[2J-reader" in page
        form = (await visitor.get("/group/reset?id=acted%1B%5B2J")).text
        assert 'name="id" value="acted&#27;[2J"' in form

    visit(world.servers, walk)


def test_group_that_was_deleted_is_not_what_was_meant(late):
    """The last look at all groups still has it."""

    async def walk(visitor: Visitor) -> None:
        await visitor.get("/groups")
        await asyncio.to_thread(late.admin.delete_groups, ["done"])
        answer = await visitor.get("/group.json?id=done")
        assert (answer.status, answer.json["near"]) == (404, [])

    visit(late.servers, walk)


def test_group_that_does_not_exist_is_not_there(late):
    """Ids that are alike are named; nothing is created."""

    async def walk(visitor: Visitor) -> None:
        await visitor.get("/groups")
        answer = await visitor.get("/group.json?id=dome")
        assert (answer.status, answer.json["near"]) == (404, ["done"])
        assert (await visitor.get("/group")).status == 400
        assert (await visitor.get("/group?id=done&span=2h")).status == 400

    visit(late.servers, walk)
    assert {each.group_id for each in late.admin.list_groups()} >= {"late/er", "done"}
    assert "dome" not in {each.group_id for each in late.admin.list_groups()}


def test_group_is_deleted_once_its_id_is_typed(late):
    """Its offsets are in the line of audit; a read-only console has no such path."""

    async def walk(visitor: Visitor) -> None:
        wrong = await visitor.post("/group/delete", id="done", name="don")
        assert wrong.status == 400
        right = await visitor.post("/group/delete", id="done", name="done")
        assert (right.status, right.header("location")) == (303, "/groups")
        assert "Group done is deleted" in (await visitor.get("/groups")).text

    async def look(visitor: Visitor) -> None:
        assert (await visitor.post("/group/delete", id="late/er", name="late/er")).status == 404
        page = (await visitor.get("/group?id=late%2Fer")).text
        assert "Delete this group" not in page
        assert "Reset offsets" not in page

    visit(late.servers, walk)
    visit(late.servers, look, read_only=True)
    assert "late/er" in {each.group_id for each in late.admin.list_groups()}


@pytest.mark.parametrize("settings", [{"hide_records": True}, {"masks": ["a mask"]}])
def test_record_that_stops_a_reader_is_hidden_with_all_others(world, settings):
    """The cause is named without key and value."""
    (secret,) = world.add_topic(f"secret-{len(settings)}-{next(iter(settings))}")
    world.write(secret, 5, b"never shown")
    world.admin.alter_group_offsets("prying", {secret: 1})

    async def walk(visitor: Visitor) -> None:
        text = (await visitor.get("/group.json?id=prying")).text
        plan = await visitor.get(f"/group/reset.json?id=prying&topic={secret.topic}&to=to-earliest")
        assert "never shown" not in text + plan.text
        assert [line["record"] for line in plan.json["lines"]] == [None]

    visit(world.servers, walk, **settings)


def test_overview_names_groups_that_are_behind(late, monkeypatch):
    """Those whose next record has waited for a while; worst first."""
    monkeypatch.setattr("ottla.console.group_pages.ATTENTION_S", 0)

    async def walk(visitor: Visitor) -> None:
        await visitor.get("/groups")
        found = (await visitor.get("/overview.json")).json["attention"]
        behind = [each for each in found if each["path"] == "/group?id=late%2Fer"]
        assert [each["command"] for each in behind] == ["ottla lag late/er --explain"]
        assert behind[0]["text"].endswith("behind, by 6 records")

    visit(late.servers, walk)


def test_hostile_ids_are_text(world):
    """An id may hold anything that is UTF-8."""
    name = '"><script>alert(1)</script>{{7*7}}'
    (topic,) = world.add_topic("hostile")
    world.admin.alter_group_offsets(name, {topic: 0})

    async def walk(visitor: Visitor) -> None:
        for path in (
            "/groups",
            f"/group?id={'%22%3E%3Cscript%3Ealert(1)%3C/script%3E%7B%7B7*7%7D%7D'}",
        ):
            page = await visitor.get(path)
            assert page.status == 200
            assert "<script>alert" not in page.text
            assert "{{7*7}}" in page.text

    visit(world.servers, walk)
    world.admin.delete_groups([name])


def test_trend_is_that_of_the_last_minute():
    """In records a second; gaps do not count, and one look has no trend."""
    assert trend_per_s([None, 10, None, 40]) == 3
    assert trend_per_s([900, *range(0, 120, 10)]) == 2
    assert trend_per_s([5]) is None
    assert trend_per_s([]) is None


def test_short_gaps_have_the_last_lag():
    """Where groups are looked at less often; a long gap stays one."""
    assert carried([None, 5, None, None, 7]) == [None, 5, 5, 5, 7]
    assert carried([5, *[None] * 50])[-1] is None


def test_plot_has_at_most_240_points():
    """Each has the highest numbers of those that it stands for, from the first look on."""
    points = [PlotPoint(1000 * at, None if at < 20 else at, 1) for at in range(720)]
    found = thinned(points)

    assert len(found) <= 240
    assert found[0] == PlotPoint(20_000, 22, 1)
    assert found[-1].lag == 719


@pytest.mark.parametrize(("lag", "colour"), [(0, 0), (1, 1), (34, 2), (90, 3), (100, 3)])
def test_heat_is_a_lag_against_the_worst(lag, colour):
    """Only what has no lag is cold."""
    assert heat(lag, 100) == colour


@pytest.fixture
def foreign(late: LagWorld, monkeypatch: pytest.MonkeyPatch) -> LagWorld:
    """A broker that has a share group, `pickers`, and of `late/er` makes a streams group.

    Apache Kafka lists such groups; to DescribeGroups they are dead.
    """
    describe, listing = GroupAdmin.describe_groups, GroupAdmin.list_groups
    others = [
        GroupListing("late/er", "streams", "Stable", "streams"),
        GroupListing("pickers", "share", "Stable", "share"),
    ]

    async def list_groups(self, states, types=()):
        own = [each for each in await listing(self, states) if each.group_id != "late/er"]
        return others if types else sorted(own + others)

    async def describe_groups(self, names):
        found = await describe(self, names)
        return {
            name: replace(each, state="Dead", protocol_type="") if name == "late/er" else each
            for name, each in found.items()
        }

    monkeypatch.setattr(GroupAdmin, "list_groups", list_groups)
    monkeypatch.setattr(GroupAdmin, "describe_groups", describe_groups)
    return late


def test_groups_that_describe_groups_does_not_know_are_not_dead(foreign):
    """A share group has no lag; a streams group has one, and nobody says that nobody reads."""

    async def walk(visitor: Visitor) -> None:
        rows = (await visitor.get("/groups.json")).json["rows"]
        found = {row["group"]: (row["state"], row["lag"], row["members"]) for row in rows}
        assert found["pickers"] == ("Stable", None, None)
        assert found["late/er"] == ("Stable", 6, None)
        assert "Dead" not in (await visitor.get("/groups")).text
        share = (await visitor.get("/group.json?id=pickers")).json
        assert (share["state"], share["type"], share["causes"]) == ("Stable", "share", [])
        page = (await visitor.get("/group?id=pickers")).text
        assert "kafka-share-groups --describe --members --group pickers" in page
        assert "has read all there is" not in page
        streams = (await visitor.get("/group.json?id=late%2Fer")).json
        assert (streams["state"], streams["type"], streams["lag"]) == ("Stable", "streams", 6)
        assert "nobody_reads" not in {each["rule"] for each in streams["causes"]}
        page = (await visitor.get("/group?id=late%2Fer")).text
        assert "This is a streams group" in page
        assert "nobody" not in page
        assert (await visitor.get("/group?id=neither")).status == 404

    visit(foreign.servers, walk)


@pytest.mark.parametrize("group", ["pickers", "late/er"])
def test_offsets_of_groups_of_another_kind_are_not_reset(foreign, group):
    """Neither by the form nor by a plan; the sentence names the command that does."""

    async def walk(visitor: Visitor) -> None:
        form = {"id": group, "topic": "late", "plan": ";0:0"}
        asked = await visitor.get(f"/group/reset?id={group.replace('/', '%2F')}")
        for answer in (asked, await visitor.post("/group/reset", **form)):
            assert answer.status == 400
            assert "-groups --reset-offsets" in answer.text

    visit(foreign.servers, walk)


@contextmanager
def odd_group(world: LagWorld, group: str, assignment: bytes) -> Iterator[None]:
    """A group of one member, whose assignment are these bytes."""
    ids = {"group_id": group, "protocol_type": "consumer"}
    limits = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\xff")]

    async def ask(request: Request) -> Any:
        admin = world.cluster.admin
        coordinator = await admin.coordinator(group, admin.deadline())
        return await world.cluster.client.send(coordinator.id, request)

    async def join() -> str:
        member_id = ""
        for _ in range(2):  # the first answer gives the id
            request = JoinGroupRequest(member_id=member_id, protocols=protocols, **ids, **limits)
            joined = await ask(request)
            member_id = joined.member_id
        given = [SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)]
        place = {"generation_id": joined.generation_id, "member_id": member_id}
        sync = SyncGroupRequest(protocol_name="range", assignments=given, **place, **ids)
        assert not (await ask(sync)).error_code
        return member_id

    members = [MemberIdentity(member_id=world.run(join()))]
    try:
        yield
    finally:
        world.run(ask(LeaveGroupRequest(group_id=group, members=members)))


@pytest.mark.parametrize(
    "assignment",
    [b"\xff", b"\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\2\xff\xfe\0\0\0\0"],
)
def test_assignment_that_is_none_hides_no_other_group(late, assignment):
    """A leader may give out any bytes; only its own group is not described then."""

    async def walk(visitor: Visitor) -> None:
        rows = {row["group"]: row for row in (await visitor.get("/groups.json")).json["rows"]}
        assert rows["late/er"]["members"] == 0
        assert (rows["<b>odd"]["state"], rows["<b>odd"]["members"]) == ("Stable", None)
        assert "<b>odd" not in (await visitor.get("/groups")).text
        answer = await visitor.get("/group?id=%3Cb%3Eodd")
        assert answer.status == 502
        assert "an assignment cannot be read" in answer.text
        assert "<b>odd" not in answer.text

    with odd_group(late, "<b>odd", assignment):
        visit(late.servers, walk)
