"""A group of workers in the test's process: who leads, who runs what, and what the topics hold."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from connect_kit import Growing, Swapping, ask, distributed, wait_for_state

from ottla import Admin, Producer
from ottla.clients.admin.descriptions import NewTopic
from ottla.connect import distributed_herder
from ottla.connect.connect_protocol import CONNECTOR
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.worker import Worker
from ottla.connect.worker_task import TaskId
from ottla.errors import ConfigError, KafkaTimeoutError
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture
def broker():
    """A broker of the test's own: groups and topics have fixed names."""
    with InProcessBroker(group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def workers(broker):
    """Starts workers, and closes those that a test has left."""
    started = []

    def start(count, **more):
        new = [distributed(broker, **more) for _ in range(count)]
        started.extend(new)
        wait_until(
            lambda: all(ask(worker, "GET", "/health")[0] == 200 for worker in new),
            "all workers in the group",
        )
        return new

    yield start
    for worker in started:
        worker.close()


def split(name, tasks=4):
    return {
        "connector.class": "connect_kit.Splitting",
        "tasks.max": str(tasks),
        "topic": name,
    }


def latest(broker, topic):
    """The values of a compacted topic by key, without tombstones."""
    found = {record.key.decode(): record.value for record in broker.records(topic)}
    return {key: json.loads(value) for key, value in found.items() if value is not None}


def owners(worker, name):
    _, status = ask(worker, "GET", f"/connectors/{name}/status")
    return {task["worker_id"] for task in status["tasks"]}


def test_one_worker_runs_what_it_is_asked(broker, workers):
    """Everything is in the three topics, under Kafka's keys, in Kafka's JSON."""
    (worker,) = workers(1)
    assert ask(worker, "PUT", "/connectors/one/config", split("one", 1))[0] == 201
    wait_for_state(worker, "one", "RUNNING", "RUNNING")
    broker.wait_for_records("one", 1)
    wait_until(lambda: latest(broker, "connect-offsets"), "an offset in the topic")

    configs = latest(broker, "connect-configs")
    assert configs["connector-one"] == {"properties": {**split("one", 1), "name": "one"}}
    assert configs["commit-one"] == {"tasks": 1}
    task = configs["task-one-0"]["properties"]
    assert (task["number"], task["task.class"]) == ("0", "connect_kit.Splitting")
    assert configs["session-key"]["algorithm"] == "HmacSHA256"
    assert latest(broker, "connect-offsets") == {'["one",{"number":0}]': {"done": True}}
    statuses = latest(broker, "connect-status")
    assert list(statuses["status-task-one-0"]) == [
        "state",
        "trace",
        "worker_id",
        "generation",
        "version",
    ]
    assert "status-topic-one:connector-one" in statuses


def test_work_is_divided_and_any_worker_answers(broker, workers):
    """Requests to one that does not lead are sent on; tasks are shared."""
    first, second = workers(2)
    for worker, name in ((first, "a"), (second, "b")):
        assert ask(worker, "PUT", f"/connectors/{name}/config", split(name))[0] == 201
    for name in "ab":
        wait_for_state(first, name, *["RUNNING"] * 5)
        wait_for_state(second, name, *["RUNNING"] * 5)
        broker.wait_for_records(name, 4)

    wait_until(lambda: len(owners(first, "a") | owners(first, "b")) == 2, "both to have work")
    wait_until(
        lambda: (
            ask(first, "GET", "/connectors/a/status") == ask(second, "GET", "/connectors/a/status")
        ),
        "both to say the same",
    )
    assert ask(second, "DELETE", "/connectors/a")[0] == 204
    assert ask(first, "DELETE", "/connectors/b")[0] == 204
    wait_until(lambda: ask(first, "GET", "/connectors")[1] == [], "no connectors")


def test_work_of_a_worker_that_leaves_is_taken_over(broker, workers):
    """Without a delay at once; with offsets, so that nothing is said twice."""
    first, second = workers(2)
    assert ask(first, "PUT", "/connectors/moving/config", split("moving"))[0] == 201
    wait_for_state(first, "moving", *["RUNNING"] * 5)
    broker.wait_for_records("moving", 4)
    wait_until(lambda: len(owners(first, "moving")) == 2, "tasks on both workers")
    second.close()
    survivor = first.herder.worker_id

    wait_until(lambda: owners(first, "moving") == {survivor}, "all tasks on one worker")
    wait_for_state(first, "moving", *["RUNNING"] * 5)
    assert len(broker.records("moving")) == 4


def test_any_worker_begins_the_rebalance_at_the_end_of_the_delay(broker, workers):
    """A follower that joins first begins it too; once it got the generation that there was."""
    started = workers(3, scheduled_rebalance_max_delay_ms="600000")
    assert ask(started[0], "PUT", "/connectors/away/config", split("away", 3))[0] == 201
    wait_until(lambda: len(owners(started[0], "away")) == 3, "a task on each worker")
    lost = next(each for each in started if not each.herder.group.is_leader)
    lost.close()
    left = [each.herder.group for each in started if each is not lost]
    wait_until(lambda: all(each.assignment.delay_ms for each in left), "the delay")
    generation = left[0].member.generation
    (follower,) = [each for each in started if each is not lost and not each.herder.group.is_leader]
    follower.run(rejoin(follower))

    wait_until(lambda: all(each.member.generation > generation for each in left), "another round")


async def rejoin(worker):
    """What the worker does when the delay is over."""
    worker.herder.group.member.request_join()


def test_workers_come_back_to_what_was_configured(broker, workers):
    """A new group reads the config topic: connectors, states and offsets."""
    (worker,) = workers(1)
    ask(worker, "PUT", "/connectors/kept/config", split("kept", 2))
    wait_for_state(worker, "kept", *["RUNNING"] * 3)
    broker.wait_for_records("kept", 2)
    assert ask(worker, "PUT", "/connectors/kept/pause")[0] == 202
    wait_for_state(worker, "kept", *["PAUSED"] * 3)
    worker.close()
    (again,) = workers(1)

    wait_for_state(again, "kept", *["PAUSED"] * 3)
    assert ask(again, "PUT", "/connectors/kept/resume")[0] == 202
    wait_for_state(again, "kept", *["RUNNING"] * 3)
    assert len(broker.records("kept")) == 2


def test_stopped_connector_has_no_tasks_and_offsets_that_can_be_set(broker, workers):
    """STOPPED stays over restarts of tasks; offsets go to the topic (KIP-875)."""
    (worker,) = workers(1)
    ask(worker, "PUT", "/connectors/still/config", split("still", 1))
    broker.wait_for_records("still", 1)
    assert ask(worker, "PUT", "/connectors/still/stop")[0] == 204
    wait_for_state(worker, "still", "STOPPED")
    wait_until(lambda: ask(worker, "GET", "/connectors/still/offsets")[1]["offsets"], "the offset")
    assert ask(worker, "DELETE", "/connectors/still/offsets")[0] == 200
    assert latest(broker, "connect-offsets") == {}
    assert ask(worker, "PUT", "/connectors/still/resume")[0] == 202
    broker.wait_for_records("still", 2)


def put(worker, name, config):
    """Ask until it is done: the answer is 409 while the group rebalances."""
    path = f"/connectors/{quote(name, safe='')}/config"
    wait_until(lambda: ask(worker, "PUT", path, config)[0] < 300, f"{name} to be configured")


def growing(name, **more):
    config = {"connector.class": "connect_kit.Growing", "topic": name, "tasks.max": "9"}
    return config | {key: str(value) for key, value in more.items()}


def test_offsets_that_a_person_sets_outlive_tasks_that_still_end(broker, workers, caplog):
    """A task stores its offsets once more as it ends: a request about offsets waits for that."""
    caplog.set_level(logging.INFO)
    (worker,) = workers(1, offset_flush_interval_ms=3_600_000)  # none is stored before its end
    put(worker, "slow", growing("slow", count=10**6, batch=1))
    broker.wait_for_records("slow", 3)
    with ThreadPoolExecutor() as threads:
        with Growing.standing:
            ask(worker, "PUT", "/connectors/slow/stop")
            wait_for_state(worker, "slow", "STOPPED")
            asked = threads.submit(ask, worker, "DELETE", "/connectors/slow/offsets")
            said = "Offsets of slow wait for the end of its tasks"
            wait_until(lambda: asked.done() or said in caplog.text, "the request to wait, or end")
        assert asked.result()[0] == 200
    wait_until(lambda: not worker.herder.worker._ending, "the end of the task")
    assert ask(worker, "GET", "/connectors/slow/offsets")[1] == {"offsets": []}


def test_connector_that_is_stopped_on_its_way_to_a_worker_has_no_tasks(broker, workers):
    """The next one takes them away: the one that had it did not see that it was stopped."""
    (worker,) = workers(1)
    herder, connector = worker.herder, TaskId("moving", CONNECTOR)
    put(worker, "moving", growing("moving"))
    wait_for_state(worker, "moving", "RUNNING", "RUNNING")

    async def moves(change):
        change(connector)
        await herder._reconcile()

    worker.run(moves(herder.owned.remove))
    assert ask(worker, "PUT", "/connectors/moving/stop")[0] == 204
    worker.run(moves(herder.owned.add))
    wait_for_state(worker, "moving", "STOPPED")


def test_session_key_is_young_without_a_rebalance(broker, workers):
    """The leader makes another one after inter.worker.key.ttl.ms, and all know it."""
    first, second = workers(2, inter_worker_key_ttl_ms=100)
    keys = defaultdict(set)

    def have_changed_twice():
        generation = first.herder.group.member.generation
        keys[generation].add(first.herder.session_key)
        return len(keys[generation]) > 2

    wait_until(have_changed_twice, "two other keys in one generation")
    wait_until(lambda: first.herder.session_key == second.herder.session_key, "one key for both")
    put(first, "after", split("after", 4))
    wait_for_state(second, "after", *["RUNNING"] * 5)


@pytest.mark.parametrize("target", ["stop", "pause"])
def test_connector_that_is_resumed_at_once_has_its_tasks(workers, target):
    """However the writing of its tasks and of its target follow each other."""
    first, second = workers(2)
    put(first, "quick", split("quick", 3))
    wait_for_state(first, "quick", *["RUNNING"] * 4)
    for _ in range(5):
        wait_until(lambda: ask(first, "PUT", f"/connectors/quick/{target}")[0] < 300, target)
        wait_until(lambda: ask(second, "PUT", "/connectors/quick/resume")[0] < 300, "resume")
    wait_for_state(first, "quick", *["RUNNING"] * 4)


def test_pause_asks_no_connector_for_its_tasks(workers, monkeypatch):
    """One whose system is down could not say them, and would be FAILED; a resumed one is asked."""
    (worker,) = workers(1)
    put(worker, "quiet", growing("quiet"))
    wait_for_state(worker, "quiet", "RUNNING", "RUNNING")
    tasks, asked = Growing.tasks, []

    def counted(connector, max_tasks):
        asked.append(max_tasks)
        return tasks(connector, max_tasks)

    monkeypatch.setattr(Growing, "tasks", counted)
    ask(worker, "PUT", "/connectors/quiet/pause")
    wait_for_state(worker, "quiet", "PAUSED", "PAUSED")
    assert not asked
    ask(worker, "PUT", "/connectors/quiet/resume")
    wait_for_state(worker, "quiet", "RUNNING", "RUNNING")
    wait_until(lambda: len(asked) == 1, "the question")


def test_late_answer_of_a_connector_does_not_replace_the_next(workers, monkeypatch):
    """It is asked for its tasks again while it still looks for what they were."""
    monkeypatch.setattr(Growing, "slow_to_say", 1)
    (worker,) = workers(1)
    with Growing.saying:
        ask(worker, "PUT", "/connectors/late/config", growing("late"))
        connectors = worker.herder.worker.connectors
        connector = wait_until(lambda: connectors.get("late"), "the connector").made.result(60)
        wait_until(lambda: connector.seen == 1, "the first question")
        monkeypatch.setattr(Growing, "splits", 2)
        planning = worker.herder._planning
        wait_until(lambda: "late" in planning and planning["late"].locked(), "the second one")
        wait_until(
            lambda: (
                connectors["late"].planning.locked() or len(worker.status("late")["tasks"]) == 2
            ),
            "its turn, or its answer",
        )
    wait_for_state(worker, "late", "RUNNING", "RUNNING", "RUNNING")


def test_tasks_are_stored_once_a_broker_is_there(broker, workers, monkeypatch, caplog):
    """A connector that is split again during an outage longer than a write waits is not left so."""
    monkeypatch.setattr(distributed_herder, "WRITE_LIMIT_MS", 500)
    (worker,) = workers(1)
    put(worker, "g", growing("g"))
    wait_for_state(worker, "g", "RUNNING", "RUNNING")
    broker.stop()
    monkeypatch.setattr(Growing, "splits", 2)
    wait_until(lambda: "tasks of g are not stored yet" in caplog.text, "an attempt that fails")
    broker.start()
    wait_for_state(worker, "g", "RUNNING", "RUNNING", "RUNNING")


def test_statuses_are_written_once_a_broker_takes_them(broker, workers, monkeypatch):
    """Other workers know of a state by the topic alone: it is not given up after a while."""
    monkeypatch.setattr(distributed_herder, "STATUS_PAUSE_S", 0)
    (worker,) = workers(1)
    table = worker.herder._status_table
    write, failed = table.write, []

    def write_later(entries, timeout_ms):
        if len(failed) < 9:
            failed.append(entries)
            raise KafkaTimeoutError("no broker takes it")
        write(entries, timeout_ms)

    monkeypatch.setattr(table, "write", write_later)
    ask(worker, "PUT", "/connectors/said/config", split("said", 2))
    keys = {"status-connector-said", "status-task-said-0", "status-task-said-1"}
    wait_until(
        lambda: (
            {
                key
                for key, each in latest(broker, "connect-status").items()
                if each.get("state") == "RUNNING"
            }
            == keys
        ),
        "all states",
    )


def test_task_that_moves_begins_behind_what_was_stored(broker, workers, monkeypatch):
    """However late its next worker reads the topic of offsets by itself."""
    take, refresh, unread = TopicOffsetStorage._take, TopicOffsetStorage.refresh, {}

    def read_when_asked(storage, record):
        unread.setdefault(id(storage), []).append(record)

    def refresh_all(storage, timeout_ms):
        refresh(storage, timeout_ms)
        for record in unread.pop(id(storage), ()):
            take(storage, record)

    monkeypatch.setattr(TopicOffsetStorage, "_take", read_when_asked)
    monkeypatch.setattr(TopicOffsetStorage, "refresh", refresh_all)
    first, second = workers(2)
    put(first, "moves", growing("moves", count=5))
    broker.wait_for_records("moves", 5)
    wait_until(lambda: latest(broker, "connect-offsets"), "the offset")
    runs = first if TaskId("moves", 0) in first.herder.worker.tasks else second
    other = second if runs is first else first
    runs.close()
    wait_until(lambda: TaskId("moves", 0) in other.herder.worker.tasks, "the task to move")
    put(other, "moves", growing("moves", count=7))
    found = [int(record.value) for record in broker.wait_for_records("moves", 7)]
    assert found == list(range(7))


NAMES = ["a/b", "what?", "50% of #1", "%2F", "č á", "a+b;c=d", "..", "'\"<>", "x" * 300]


def test_connectors_of_any_name_have_tasks(broker, workers):
    """Whichever worker has the connector, and whoever leads."""
    first, second = workers(2)
    for number, name in enumerate(NAMES):
        put(second, name, split(f"topic-{number}", 2))
        wait_until(lambda name=name: name in ask(first, "GET", "/connectors")[1], name)
    for number, name in enumerate(NAMES):
        wait_for_state(first, quote(name, safe=""), *["RUNNING"] * 3)
        broker.wait_for_records(f"topic-{number}", 2)
        path = f"/connectors/{quote(name, safe='')}"
        assert restart_task(second, f"{path}/tasks/1/restart")
        wait_until(lambda path=path: ask(second, "DELETE", path)[0] == 204, "its deletion")
    wait_until(lambda: ask(first, "GET", "/connectors")[1] == [], "no connector")


def test_no_task_starts_beside_one_of_the_planning_before(broker, workers, monkeypatch):
    """Both would read the same partition of the source, each from what it knows to be stored."""
    both = workers(2)
    config = split("swap", 2) | {"connector.class": "connect_kit.Swapping"}
    config |= {"count": "1000000", "batch": "1"}
    put(both[0], "swap", config)
    wait_for_state(both[0], "swap", *["RUNNING"] * 3)
    wait_until(lambda: len(owners(both[0], "swap")) == 2, "a task on each")
    task = TaskId("swap", 0)
    slow, other = both if task in both[0].herder.worker.tasks else both[::-1]
    former = other.herder.worker.tasks[TaskId("swap", 1)]
    with Swapping.standing:
        monkeypatch.setattr(Swapping, "shift", 1)
        wait_until(lambda: slow.herder.worker._ending, "the end of a task to be awaited")
        wait_until(former.finished.done, "the end of the other")
        assert TaskId("swap", 1) not in other.herder.worker.tasks
    wait_for_state(both[0], "swap", *["RUNNING"] * 3)


def test_worker_leaves_when_its_tasks_have_ended(broker, workers):
    """No other worker runs a task that still ends, and could send and store what that one does."""
    first, second = workers(2)
    put(first, "leaving", growing("leaving", count=10**6, batch=1))
    broker.wait_for_records("leaving", 1)
    task = TaskId("leaving", 0)
    runs, other = (first, second) if task in first.herder.worker.tasks else (second, first)
    with ThreadPoolExecutor() as threads, Admin(broker.bootstrap_servers) as admin:
        with Growing.standing:
            closing = threads.submit(runs.close)
            wait_until(lambda: runs.herder.worker._ending, "the end of its tasks to be awaited")
            assert len(admin.describe_groups(["workers"])["workers"].members) == 2
            assert task not in other.herder.worker.tasks
        closing.result(60)
    wait_until(lambda: task in other.herder.worker.tasks, "the task to move")
    end = len(broker.records("leaving"))
    wait_until(lambda: len(broker.records("leaving")) > end, "more records")
    found = [int(record.value) for record in broker.records("leaving")]
    assert found == list(range(len(found)))


def restart_task(worker, path):
    """Ask until it is done: the answer is 409 while the group rebalances."""
    return wait_until(lambda: ask(worker, "POST", path)[0] == 204, f"{path} to be answered")


def test_restart_reaches_the_worker_that_runs_it(broker, workers):
    """Whichever worker is asked."""
    first, second = workers(2)
    ask(first, "PUT", "/connectors/r/config", split("r", 2))
    wait_for_state(first, "r", *["RUNNING"] * 3)
    for worker in (first, second):
        assert ask(worker, "POST", "/connectors/r/restart?includeTasks=true")[0] == 202
        for task in (0, 1):
            restart_task(worker, f"/connectors/r/tasks/{task}/restart")
    wait_for_state(second, "r", *["RUNNING"] * 3)


def test_value_that_is_gone_fails_its_connector_alone(broker, workers, tmp_path):
    """A worker joined its group again each second, and ran nothing that came behind it."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("topic=a\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    settings = {"config_providers": "file", "config_providers_file_class": provider}
    (worker,) = workers(1, **settings)
    given = split("a", tasks=1) | {"topic": f"${{file:{secrets}:topic}}"}
    ask(worker, "PUT", "/connectors/a/config", given)
    wait_for_state(worker, "a", "RUNNING", "RUNNING")
    secrets.unlink()
    worker.close()

    (worker,) = workers(1, **settings)
    wait_for_state(worker, "a", "FAILED", "FAILED")
    ask(worker, "PUT", "/connectors/b/config", split("b", tasks=1))
    wait_for_state(worker, "b", "RUNNING", "RUNNING")
    status = ask(worker, "GET", "/connectors/a/status")[1]
    generation = worker.herder.group.member.generation
    secrets.write_text("topic=a\n")
    ask(worker, "POST", "/connectors/a/restart?includeTasks=true")
    wait_for_state(worker, "a", "RUNNING", "RUNNING")

    for each in (status["connector"], *status["tasks"]):
        assert f"{given['topic']}: cannot be read" in each["trace"]
    assert worker.herder.group.member.generation == generation


def test_offsets_are_asked_and_set_where_settings_are_references(broker, workers, tmp_path):
    """Of a source, and of a sink whose group a reference names."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("count=2\ngroup=other\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    (worker,) = workers(1, config_providers="file", config_providers_file_class=provider)
    source = {"connector.class": "connect_kit.MoodySource", "topic": "numbers"}
    sink = {"connector.class": "connect_kit.MoodySink", "topics": "numbers"}
    source |= {"count": f"${{file:{secrets}:count}}"}
    sink |= {"consumer.override.group.id": f"${{file:{secrets}:group}}"}
    place = {"partition": {}, "offset": {"n": 7}}
    read = {
        "partition": {"kafka_topic": "numbers", "kafka_partition": 0},
        "offset": {"kafka_offset": 1},
    }
    for name, config, offset in (("source", source, place), ("sink", sink, read)):
        assert ask(worker, "PUT", f"/connectors/{name}/config", config)[0] == 201
        wait_for_state(worker, name, "RUNNING", "RUNNING")
        ask(worker, "PUT", f"/connectors/{name}/stop")
        wait_for_state(worker, name, "STOPPED")
        status, told = ask(worker, "PATCH", f"/connectors/{name}/offsets", {"offsets": [offset]})
        assert status == 200, told
        assert ask(worker, "GET", f"/connectors/{name}/offsets")[1] == {"offsets": [offset]}
    with Admin(broker.bootstrap_servers) as admin:
        assert [each.offset for each in admin.list_group_offsets("other").values()] == [1]


def test_starts_of_many_tasks_hold_up_no_heartbeat(broker, workers, monkeypatch):
    """Two thousand took longer than a session: the worker was put out, and began again and again.

    The loop turns between two starts, and to know the wanted ones takes a step for each.
    """
    (worker,) = workers(1)
    turns, starts = [], []
    start = Worker.start_task

    def noted_start(self, *task):
        starts.append(len(turns))
        asyncio.get_running_loop().call_soon(turns.append, None)
        start(self, *task)

    def steps():
        found = []
        sys.setprofile(lambda _, event, name: found.append(event))
        try:
            worker.herder._wanted_tasks()
        finally:
            sys.setprofile(None)
        return len(found)

    monkeypatch.setattr(Worker, "start_task", noted_start)
    ask(worker, "PUT", "/connectors/few/config", split("few", tasks=10))
    wait_for_state(worker, "few", *["RUNNING"] * 11)
    of_few = steps()
    ask(worker, "PUT", "/connectors/many/config", split("many", tasks=90))
    wait_for_state(worker, "many", *["RUNNING"] * 91)

    assert len(set(starts)) == len(starts) == 100
    assert steps() < 20 * of_few


def test_connectors_that_hang_are_stopped_at_once(broker, workers, monkeypatch):
    """One after the other they kept a worker from its group for longer than it is waited for."""
    (worker,) = workers(1)
    stopped = []
    stop = Worker.stop_connectors

    async def noted_stop(self, names):
        stopped.append(sorted(names))
        await stop(self, stopped[-1])

    for name in ("a", "b", "c"):
        ask(worker, "PUT", f"/connectors/{name}/config", split(name, tasks=1))
        wait_for_state(worker, name, "RUNNING", "RUNNING")
    monkeypatch.setattr(Worker, "stop_connectors", noted_stop)
    loop = worker.herder._loop
    asyncio.run_coroutine_threadsafe(worker.herder._drop_all(), loop).result(60)

    assert [names for names in stopped if names] == [["a", "b", "c"]]


def test_changed_connector_runs_with_its_new_settings(broker, workers):
    """Where it runs it is planned again; tasks that are too many are gone."""
    (worker,) = workers(1)
    ask(worker, "PUT", "/connectors/c/config", split("c", 3))
    wait_for_state(worker, "c", *["RUNNING"] * 4)
    assert ask(worker, "PUT", "/connectors/c/config", split("d", 1))[0] == 200

    wait_until(
        lambda: (
            [task["config"]["topic"] for task in ask(worker, "GET", "/connectors/c/tasks")[1]]
            == ["d"]
        ),
        "one task with the new settings",
    )
    wait_for_state(worker, "c", "RUNNING", "RUNNING")


def test_task_settings_from_strangers_are_refused(broker, workers):
    """Without a signature 400, with a wrong one 403 (KIP-507)."""
    (worker,) = workers(1)
    ask(worker, "PUT", "/connectors/s/config", split("s", 1))
    wrong = {
        "X-Connect-Authorization": "AAAA",
        "X-Connect-Request-Signature-Algorithm": "HmacSHA256",
    }

    assert ask(worker, "POST", "/connectors/s/tasks", [{}])[0] == 400
    assert ask(worker, "POST", "/connectors/s/tasks", [{}], wrong)[0] == 403


@pytest.mark.parametrize("protocol", ["eager", "compatible"])
def test_older_protocols(broker, workers, protocol):
    """The group takes what all of its workers have."""
    first, second = workers(1, connect_protocol=protocol)[0], workers(1)[0]
    ask(second, "PUT", "/connectors/old/config", split("old"))
    wait_for_state(first, "old", *["RUNNING"] * 5)

    assert first.herder.group.protocol == {"eager": "default"}.get(protocol, protocol)


def test_sinks_share_a_topic(broker, workers, tmp_path):
    """Every record is written by one of the tasks, whichever worker they are on."""
    first, _ = workers(2)
    broker.create_topic("shared", partitions=4)
    path = tmp_path / "out.txt"
    config = {
        "connector.class": "FileStreamSink",
        "tasks.max": "2",
        "topics": "shared",
        "file": str(path),
    }
    ask(first, "PUT", "/connectors/out/config", config)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(40):
            producer.send("shared", str(number).encode(), partition=number % 4)

    wait_until(
        lambda: path.exists() and sorted(path.read_text().split()) == sorted(map(str, range(40))),
        "all lines",
    )


def test_config_topic_that_is_not_compacted_is_refused(broker):
    """What it holds would be gone after a week: the error names the remedy."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("connect-configs", 1, 1)])
    with pytest.raises(ConfigError, match=r"must have cleanup\.policy=compact, not delete"):
        distributed(broker)


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_level_of_the_log_reaches_the_group(broker, workers, support):
    """Any worker takes it, whoever leads; it is a record under Kafka's key (KIP-976)."""
    started = workers(2, exactly_once_source_support=support)
    set_by = {worker.url: [] for worker in started}  # they share the loggers of one process
    for worker in started:
        worker.herder.log_levels.set = lambda *change, url=worker.url: set_by[url].append(change)
    for number, worker in enumerate(started):
        change = (f"levels.of.{number}", "TRACE")
        path = f"/admin/loggers/{change[0]}?scope=cluster"
        assert ask(worker, "PUT", path, {"level": "TRACE"}) == (204, None)
        assert set_by[worker.url][-1] == change
        wait_until(
            lambda change=change: all(found[-1:] == [change] for found in set_by.values()),
            "the level in each worker",
        )

    assert latest(broker, "connect-configs")["logger-cluster-levels.of.1"] == {"level": "TRACE"}


def test_level_of_before_is_not_taken_up(broker, workers):
    """A restart brings the levels of the start back, whatever the topic still holds."""
    (worker,) = workers(1)
    path = "/admin/loggers/levels.of.before"
    assert ask(worker, "PUT", f"{path}?scope=cluster", {"level": "OFF"})[0] == 204
    assert ask(worker, "GET", path)[1]["level"] == "OFF"
    worker.close()
    logging.getLogger("levels.of.before").setLevel(logging.INFO)  # it is the same process
    (again,) = workers(1)

    assert ask(again, "GET", path)[1] == {"level": "INFO", "last_modified": None}
