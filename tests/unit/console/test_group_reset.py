"""Offsets are reset by a plan, which is that of the Kafka-named tool."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from command_here import run_here
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla.console.group_reset import planned_offsets, reset_of
from ottla.console.refusals import Refused
from ottla.structs import TopicPartition
from ottla.testing import wait_until

EVERY = [
    ("to-earliest", ""),
    ("to-latest", ""),
    ("to-current", ""),
    ("to-datetime", "2026-01-01T00:00"),
    ("to-datetime", "2199-01-01T00:00:00.000+02:00"),
    ("shift-by", "-2"),
    ("shift-by", "100"),
    ("to-offset", "3"),
]


@pytest.fixture
def moved(world: LagWorld) -> LagWorld:
    """Topic moved has 10 records in each of two partitions; group mover has read 5 and 7."""
    if "moved" not in world.admin.list_topics():
        for each in world.add_topic("moved", 2):
            world.write(each, 10, b'{"v": 1}')
    offsets = {TopicPartition("moved", 0): 5, TopicPartition("moved", 1): 7}
    world.admin.alter_group_offsets("mover", offsets)
    return world


def committed(world: LagWorld) -> dict[int, int]:
    found = world.admin.list_group_offsets("mover")
    return {each.partition: entry.offset for each, entry in found.items()}


def dry_run(world: LagWorld, scenario: str, value: str) -> dict[int, int]:
    """The plan of `ottla consumer-groups --reset-offsets`, as CSV."""
    if scenario == "to-datetime" and len(value) == 16:
        value += ":00.000"
    words = [f"--{scenario}", *([value] if value else [])]
    if scenario == "shift-by":
        words = [f"--shift-by={value}"]
    scope = ("--group", "mover", "--topic", "moved", "--dry-run", "--export")
    outcome = run_here("consumer-groups", "--reset-offsets", "-b", world.servers, *scope, *words)
    rows = csv.reader(StringIO(outcome.stdout))
    return {int(partition): int(offset) for _, partition, offset in rows}


@pytest.mark.parametrize(("scenario", "value"), EVERY)
def test_plan_is_that_of_the_tool(moved, scenario, value):
    """Number for number; and nothing is changed."""

    async def walk(visitor: Visitor) -> dict[int, int]:
        query = f"id=mover&topic=moved&to={scenario}&value={value.replace('+', '%2B')}"
        data = (await visitor.get(f"/group/reset.json?{query}")).json
        return {line["partition"]: line["new"] for line in data["lines"]}

    found = visit(moved.servers, walk)

    assert found == dry_run(moved, scenario, value)
    assert set(found) == {0, 1}
    assert committed(moved) == {0: 5, 1: 7}


def test_plan_shows_the_records_at_the_new_places(moved):
    """With the difference, the totals, what was not possible, and the command."""

    async def walk(visitor: Visitor) -> None:
        path = "/group/reset.json?id=mover&topic=moved&to=shift-by&value=-6"
        data = (await visitor.get(path)).json
        first, second = data["lines"]
        assert (first["old"], first["new"], first["again"]) == (5, 0, 5)
        assert (second["old"], second["new"], second["again"]) == (7, 1, 6)
        assert second["record"]["offset"] == 1
        assert second["record"]["value"] == '{"v": 1}'
        assert (data["again"], data["skipped"]) == (11, 0)
        assert data["notes"] == [
            "new offset -1 is lower than earliest offset of partition moved-0; it is set to 0"
        ]
        assert data["command"] == (
            "ottla consumer-groups --reset-offsets --group mover --topic moved --shift-by -6"
        )
        latest = await visitor.get("/group/reset?id=mover&topic=moved&to=to-latest")
        assert "8</b> are skipped" in latest.text
        assert "log end" in latest.text

    visit(moved.servers, walk)


def test_reset_commits_the_plan_that_was_shown(moved, caplog):
    """The line of audit has the offsets before and after."""
    caplog.set_level("INFO", "ottla.console.audit")

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/group/reset?id=mover&topic=moved&to=to-offset&value=2")
        (plan,) = re.findall('name="plan" value="([^"]+)"', page.text)
        assert plan.endswith(";0:2,1:2")
        done = await visitor.post("/group/reset", id="mover", topic="moved", plan=plan)
        assert (done.status, done.header("location")) == (303, "/group?id=mover")

    visit(moved.servers, walk)
    assert committed(moved) == {0: 2, 1: 2}
    (line,) = [each.getMessage() for each in caplog.records if "reset-offsets" in each.getMessage()]
    assert '"old": {"moved-0": 5, "moved-1": 7}, "new": {"moved-0": 2, "moved-1": 2}' in line


def test_plan_that_does_not_fit_any_more_changes_nothing(moved):
    """The topic was made again, or has no such partition or offset."""
    moved.add_topic("again", 1)
    moved.write(TopicPartition("again", 0), 9)
    shown: list[str] = []

    async def plan(visitor: Visitor) -> None:
        page = await visitor.get("/group/reset?id=mover&topic=again&to=to-latest")
        shown.extend(re.findall('name="plan" value="([^"]+)"', page.text))

    async def carry_out(visitor: Visitor) -> None:
        (old,) = shown
        page = await visitor.get("/group/reset?id=mover&topic=again&to=to-earliest")
        (new,) = re.findall('name="plan" value="([^"]+)"', page.text)
        topic_id = new.partition(";")[0]
        for text, reason in (
            (old, "topic again was deleted and made again since the plan was shown"),
            (f"{topic_id};0:0,9:3", "topic again has no partition 9"),
            (f"{topic_id};0:9999999", "again-0 ends at 0: offset 9999999 is not there any more"),
        ):
            answer = await visitor.post("/group/reset", id="mover", topic="again", plan=text)
            assert (answer.status, reason in answer.text) == (400, True)

    visit(moved.servers, plan)
    moved.admin.delete_topics(["again"])
    wait_until(lambda: "again" not in moved.admin.list_topics(), "the topic to go")
    moved.add_topic("again", 1)
    visit(moved.servers, carry_out)
    assert committed(moved) == {0: 5, 1: 7}


def test_reset_is_refused_while_members_live(moved):
    """The plan is shown, the button is not enabled, and a form that is sent is refused."""
    reader = moved.read("mover", TopicPartition("moved", 0), TopicPartition("moved", 1))

    async def walk(visitor: Visitor) -> None:
        page = await visitor.get("/group/reset?id=mover&topic=moved&to=to-earliest")
        assert "offsets can be reset once they have stopped" in page.text
        assert '<button class="danger" disabled>' in page.text
        answer = await visitor.post("/group/reset", id="mover", topic="moved", plan="0:1")
        assert answer.status == 400
        assert "group mover is Stable: offsets can be reset once its 1 members have stopped" in (
            answer.text
        )

    visit(moved.servers, walk)
    reader.close()
    assert committed(moved) == {0: 5, 1: 7}


def test_forged_and_broken_forms_are_refused(moved):
    """Without the CSRF token, with a plan that is none, and on a read-only console."""

    async def walk(visitor: Visitor) -> None:
        form = {"id": "mover", "topic": "moved", "plan": "0:1"}
        assert (await visitor.post("/group/reset", csrf="forged", **form)).status == 403
        broken = await visitor.post("/group/reset", **{**form, "plan": "0:-1"})
        assert broken.status == 400

    async def look(visitor: Visitor) -> None:
        answer = await visitor.post("/group/reset", id="mover", topic="moved", plan="0:1")
        assert answer.status == 404
        page = await visitor.get("/group/reset?id=mover&topic=moved&to=to-earliest")
        assert "Reset the offsets<" not in page.text

    visit(moved.servers, walk)
    visit(moved.servers, look, read_only=True)
    assert committed(moved) == {0: 5, 1: 7}


@pytest.mark.parametrize(
    ("scenario", "value", "rule"),
    [
        ("to-noon", "", "to=to-noon: must be one of to-earliest"),
        ("shift-by", "few", "value=few: shift-by takes a whole number"),
        ("to-datetime", "noon", "value=noon: a time is written 2026-03-02T08:00"),
    ],
)
def test_values_that_do_not_fit_are_named(scenario, value, rule):
    """With the rule that they break."""
    with pytest.raises(Refused, match=re.escape(rule)):
        reset_of(scenario, value)


@pytest.mark.parametrize("plan", ["", "0", "0:x", "a:1", "0:1,", "0:" + "9" * 5000])
def test_plan_of_a_form_has_pairs_of_numbers(plan):
    """Anything else is refused as a whole."""
    with pytest.raises(Refused, match="must have a partition and an offset each"):
        planned_offsets("moved", plan)
