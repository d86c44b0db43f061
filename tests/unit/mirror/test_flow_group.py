"""Several processes of one flow: who has which task, and who takes over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest
from mirrors import mirroring, plan_of, properties_of

from ottla import Admin, Producer
from ottla.mirror.flow_group import KEEPER, FlowGroup, work_of
from ottla.mirror.mirror import task_of
from ottla.runtime.io_thread import Event
from ottla.structs import TopicPartition
from ottla.testing import wait_until

PARTITIONS = 6
EVERYTHING = {KEEPER, 0, 1, 2}
LIMIT_S = 180


@pytest.fixture
def over():
    """What ends a wait for the group."""
    return Event()


def owned_by(mirror):
    """What of its first flow a mirror of this process has."""
    return set(mirror.runners[0].owned)


def test_work_is_dealt_and_dealt_again(two, over):
    """One member has all; a second one gets its part, and leaves it behind when it goes."""
    flow = plan_of(two, tasks_max="3").flow("a->b")
    assert {each.task for each in work_of(flow)} == EVERYTHING
    with mirroring(two, tasks_max="3") as mirror:
        wait_until(lambda: owned_by(mirror) == EVERYTHING, "all of it", LIMIT_S)
        second = FlowGroup(flow)
        try:
            theirs = second.join(over)
            wait_until(lambda: owned_by(mirror) == EVERYTHING - theirs, "the rest", LIMIT_S)
            with Admin(two["b"].bootstrap_servers) as admin:
                states = {each.group_id: each for each in admin.list_groups()}
        finally:
            second.close()
        wait_until(lambda: owned_by(mirror) == EVERYTHING, "all of it again", LIMIT_S)

    assert 0 < len(theirs) < len(EVERYTHING)
    assert states["a-mm2"].protocol_type == "connect"


def join_and_join_again(group, over):
    """Joins whenever the group wants it, until it is refused.

    A process that is refused leaves and comes back: a second one that the group tells later can
    find itself alone in between, and be given everything.
    """
    while True:
        group.join(over)
        wait_until(lambda: group.needs_join, "another process", LIMIT_S)


def test_other_number_of_tasks_is_said(two, over):
    """Files that differ would leave partitions out, or copy them twice."""
    with mirroring(two, tasks_max="3") as mirror:
        wait_until(lambda: owned_by(mirror) == EVERYTHING, "all of it", LIMIT_S)
        second = FlowGroup(plan_of(two, tasks_max="2").flow("a->b"))
        try:
            with pytest.raises(RuntimeError, match="another process of group a-mm2"):
                join_and_join_again(second, over)
            (status,) = wait_until(
                lambda: [each for each in mirror.statuses() if each.error], "the error", LIMIT_S
            )
        finally:
            second.close()
        assert "tasks.max=3" in status.error
        wait_until(lambda: owned_by(mirror) == EVERYTHING, "all of it again", LIMIT_S)


def test_wait_for_the_group_ends_with_the_mirror(two, over):
    """A mirror that is stopped while others have not joined yet does not wait for them."""
    group = FlowGroup(plan_of(two).flow("a->b"))
    over.set()
    try:
        assert group.join(over) == frozenset()
    finally:
        group.close()


def test_partition_has_one_task_whatever_others_are_known():
    """Two processes that know different topics never copy one partition both."""
    places = [TopicPartition(topic, number) for topic in "abcdefgh" for number in range(12)]
    shares = Counter(task_of(place, 4) for place in places)

    assert set(shares.values()) == {24}
    assert {task_of(place, 1) for place in places} == {0}


@pytest.mark.wide
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "is_exact",
    [pytest.param(False, marks=pytest.mark.wide), True],
    ids=["at-least-once", "exactly-once"],
)
def test_other_process_takes_over_from_one_that_is_killed(two, tmp_path, is_exact):
    """kill -9 under load: nothing is lost, and with exactly-once nothing is there twice."""
    settings = {"tasks_max": "3", "topics": "pages", "b_consumer_session_timeout_ms": "6000"}
    if is_exact:
        settings |= {"exactly_once_source_support": "enabled"}
        settings |= {"consumer_isolation_level": "read_committed"}
    two["a"].create_topic("pages", partitions=PARTITIONS)
    file = tmp_path / "mm2.properties"
    properties = properties_of(two, **settings)
    file.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
    level = "read_committed" if is_exact else "read_uncommitted"
    written = 0

    def copied():
        return len(two["b"].records("a.pages")) if "a.pages" in two["b"].topics() else 0

    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "mirror", str(file), "--status-interval", "0"],
        env=dict(os.environ, PYTHONWARNINGS="ignore"),
    )
    try:
        with (
            Producer(two["a"].bootstrap_servers, linger_ms=100) as producer,
            mirroring(two, **settings) as mirror,
        ):

            def write():
                nonlocal written
                for _ in range(4 * PARTITIONS):
                    last = producer.send("pages", str(written), partition=written % PARTITIONS)
                    written += 1
                last.result()  # after its linger time: a steady load, not all that a core can do

            wait_until(
                lambda: owned_by(mirror) and len(owned_by(mirror)) < len(EVERYTHING),
                "both to have work",
                LIMIT_S,
                seen=lambda: (owned_by(mirror), mirror.statuses()),
            )
            before = copied()
            wait_until(lambda: copied() > before + 200, "copies", LIMIT_S, meanwhile=write)
            process.kill()
            wait_until(
                lambda: owned_by(mirror) == EVERYTHING,
                "the take-over",
                LIMIT_S,
                meanwhile=write,
            )
            write()

            def numbers():
                found = two["b"].wait_for_records("a.pages", 1, isolation_level=level)
                return Counter(int(record.value) for record in found)

            wait_until(lambda: len(numbers()) >= written, "all records", LIMIT_S)
            found = numbers()
    finally:
        process.kill()
        process.wait()

    assert sorted(found) == list(range(written))
    if is_exact:
        assert set(found.values()) == {1}
