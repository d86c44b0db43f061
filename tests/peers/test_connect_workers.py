"""Workers of Kafka and of Ottla in one Connect group, on a broker of Ottla's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from connect_group import WorkerProcess, group_properties, records
from connect_workers import FILE_SINK, FILE_SOURCE, JavaWorker

from ottla.connect.plugins import BUILT_IN, PREDICATES, TRANSFORMS
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"


class Group:
    """A broker, and one worker of each kind, which tests start and kill."""

    def __init__(self, folder, **more):
        self.folder = folder
        self.broker = BrokerProcess(folder / "data").start()
        properties = group_properties(self.broker.bootstrap_servers, **more)
        self.java = JavaWorker(folder, properties)
        self.ottla = WorkerProcess(folder, properties)

    def close(self):
        self.java.kill()
        self.ottla.kill()
        self.broker.kill()

    def both(self, method, path, body=None) -> list[tuple[int, Any]]:
        return [worker.ask(method, path, body) for worker in (self.java, self.ottla)]

    def wait_until_same(self, path, is_wanted=lambda answer: True):
        """Wait until both give this answer, in the same words."""

        def same():
            theirs, ours = self.both("GET", path)
            return theirs == ours and theirs[0] == 200 and is_wanted(theirs[1]) and theirs

        return wait_until(same, f"one answer for {path}", 60, seen=lambda: self.both("GET", path))


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Iterator[Group]:
    made = Group(tmp_path_factory.mktemp("connect"))
    yield made
    made.close()


def all_run(*owners):
    """A status of a connector whose tasks run on these workers."""

    def check(status):
        states = [status["connector"], *status["tasks"]]
        return all(each["state"] == "RUNNING" and each["worker_id"] in owners for each in states)

    return check


def same_lines(group, count):
    """Wait until the file of the sink has the lines of the source's, each once."""
    source, sink = group.folder / "in.txt", group.folder / "out.txt"
    wait_until(
        lambda: sink.exists() and len(sink.read_text().splitlines()) >= count,
        f"{count} lines",
        60,
        seen=lambda: sink.exists() and sink.read_text()[-200:],
    )
    assert sink.read_text() == source.read_text()


def append(group, first, count):
    with (group.folder / "in.txt").open("a") as file:
        file.writelines(f"line {number}\n" for number in range(first, first + count))


def source_config(group):
    file = str(group.folder / "in.txt")
    return {"connector.class": FILE_SOURCE, "tasks.max": "1", "topic": "lines", "file": file}


def sink_config(group):
    file = str(group.folder / "out.txt")
    return {"connector.class": FILE_SINK, "tasks.max": "1", "topics": "lines", "file": file}


def kept_answers(group):
    """What both must tell of the two connectors, whoever leads."""
    for name in ("source", "sink"):
        for part in ("", "/config", "/tasks", "/status", "/topics"):
            group.wait_until_same(f"/connectors/{name}{part}")
    group.wait_until_same("/connectors/source/offsets", lambda found: found["offsets"])
    group.wait_until_same("/connectors/sink/offsets", lambda found: found["offsets"])
    group.wait_until_same("/connectors", lambda found: sorted(found) == ["sink", "source"])


def test_each_leads_in_turn(group):
    """What one has written the other reads; files are copied on, no line twice."""
    java, ottla = group.java.start(), group.ottla
    body = {"name": "source", "config": source_config(group)}
    assert java.ask("POST", "/connectors", body)[0] == 201
    append(group, 0, 10)
    ottla.start()
    assert ottla.ask("PUT", "/connectors/sink/config", sink_config(group))[0] == 201
    for name in ("source", "sink"):
        group.wait_until_same(f"/connectors/{name}/status", all_run(java.id, ottla.id))
    same_lines(group, 10)
    kept_answers(group)

    java.kill()
    for name in ("source", "sink"):
        wait_until(
            lambda name=name: all_run(ottla.id)(ottla.ask("GET", f"/connectors/{name}/status")[1]),
            f"{name} on the worker that is left",
            60,
        )
    append(group, 10, 10)
    same_lines(group, 20)
    assert ottla.ask("PUT", "/connectors/source/pause")[0] == 202

    java.start()
    group.wait_until_same(
        "/connectors/source/status", lambda found: found["connector"]["state"] == "PAUSED"
    )
    assert java.ask("PUT", "/connectors/source/resume")[0] == 202
    for name in ("source", "sink"):
        group.wait_until_same(f"/connectors/{name}/status", all_run(java.id, ottla.id))
    append(group, 20, 10)
    same_lines(group, 30)
    kept_answers(group)
    changed = sink_config(group) | {"errors.log.enable": "true"}
    assert java.ask("PUT", "/connectors/sink/config", changed)[0] == 200
    group.wait_until_same(
        "/connectors/sink/tasks", lambda found: "errors.log.enable" in found[0]["config"]
    )

    ottla.kill()
    for name in ("source", "sink"):
        wait_until(
            lambda name=name: all_run(java.id)(java.ask("GET", f"/connectors/{name}/status")[1]),
            f"{name} on the worker that is left",
            60,
        )
    append(group, 30, 10)
    same_lines(group, 40)
    ottla.start()
    kept_answers(group)
    for name, worker in (("source", java), ("sink", ottla)):
        assert worker.ask("DELETE", f"/connectors/{name}")[0] == 204
    group.wait_until_same("/connectors", lambda found: found == [])


def test_levels_of_the_log_are_for_both(running):
    """A level that either is told is the same record, which the other reads (KIP-976)."""
    workers = {"logger-cluster-of.java": running.java, "logger-cluster-of.ottla": running.ottla}
    for key, worker in workers.items():
        path = f"/admin/loggers/{key.removeprefix('logger-cluster-')}"
        status, body = worker.ask("PUT", f"{path}?scope=cluster", {"level": "DEBUG"})
        assert (status, body) == (204, None)
        wait_until(
            lambda path=path: (
                [found.get("level") for _, found in running.both("GET", path)] == ["DEBUG", "DEBUG"]
            ),
            "the level in both",
            seen=lambda path=path: running.both("GET", path),
        )
    found = dict(records(running.broker.bootstrap_servers, "connect-configs"))
    assert {found[key] for key in workers} == {'{"level":"DEBUG"}'}


def test_exactly_once_sources_of_both(tmp_path):
    """Each worker takes the source over from one that was killed: no line is lost or twice."""
    group = Group(tmp_path, exactly_once_source_support="enabled")
    try:
        workers = {worker.id: worker for worker in (group.java.start(), group.ottla.start())}
        append(group, 0, 50)
        assert group.java.ask("PUT", "/connectors/source/config", source_config(group))[0] == 201
        count = 50
        killed = []
        while set(killed) != {"java", "ottla"}:
            assert len(killed) < 6, f"only these had the task: {killed}"
            owner = owner_of_task(group, workers)
            wait_for_lines(group, count)
            append(group, count, 500)
            count += 500
            owner.kill()
            killed.append(owner.kind)
            wait_for_lines(group, count)
            owner.start()
        append(group, count, 50)
        wait_for_lines(group, count + 50)
    finally:
        group.close()


def owner_of_task(group, workers):
    """The worker that runs the task of the source, as both say."""
    path = "/connectors/source/status"
    status = group.wait_until_same(path, lambda found: found["tasks"] and all_run(*workers)(found))
    return workers[status[1]["tasks"][0]["worker_id"]]


def wait_for_lines(group, count):
    """Wait until so many lines are committed, and see that each is there once, in order."""
    servers = group.broker.bootstrap_servers

    def found():
        return [value for _, value in records(servers, "lines")]

    wait_until(lambda: len(found()) >= count, f"{count} lines", 120, seen=lambda: len(found()))
    assert found() == [f"line {number}" for number in range(count)]


# What both say of the same properties.

CHAIN = {
    "transforms": "a,b",
    "transforms.a.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.a.regex": "x",
    "transforms.a.predicate": "p",
    "transforms.b.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.p.pattern": "x.*",
}
OWN = {"blacklist", "whitelist", "schema.content"}
"""Names that Kafka has given up, or has since 4.2."""
OWN_WORDS = ("documentation", "errors", "recommended_values")
"""Explanations are each one's own; so is what can be chosen: Ottla has more of it."""


@pytest.fixture
def running(group):
    """Both workers, also after a test that has killed one."""
    for worker in (group.java, group.ottla):
        if not worker.runs:
            worker.start()
    return group


def own_name(name: str) -> str:
    """A converter's own setting without the prefix; Kafka has these in no order."""
    rest = name.rpartition("converter.")[2]
    return name if rest in ("type", "plugin.version") or name == f"converter.{rest}" else rest


def comparable(part: dict[str, Any]) -> dict[str, Any]:
    """Without what is each one's own words, and with one version for all."""
    found = {key: value for key, value in part.items() if key not in OWN_WORDS}
    if "errors" in part:
        found["is wrong"] = bool(part["errors"])
    if found["name"].endswith("converter.type"):
        found.pop("required", None)  # Ottla's converters need not be told
        found.pop("default_value", None)
    if found["name"].endswith("plugin.version"):
        for key in ("value", "default_value"):
            if found.get(key) is not None:
                found[key] = "some version"
    return found


def differences(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[Any]:
    """In what two lists of settings differ, by name; their order counts too."""
    sides = [
        {part["name"]: comparable(part) for part in parts if own_name(part["name"]) not in OWN}
        for parts in (theirs, ours)
    ]
    found: list[Any] = []
    orders = [[name for name in side if own_name(name) == name] for side in sides]
    if orders[0] != orders[1]:
        found.append(("order", *orders))
    for name in sides[0].keys() & sides[1].keys():
        if sides[0][name] != sides[1][name]:
            found.append((name, sides[0][name], sides[1][name]))
    return found


@pytest.mark.parametrize("name", [FILE_SOURCE, FILE_SINK])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"name": "x", "file": "f"},
        {"name": "x", "key.converter": STRINGS, "value.converter": JSON},
        {"name": "x", "errors.tolerance": "some", "errors.retry.timeout": "x", "tasks.max": "0"},
        {"name": "x", "tasks.max": "2", **CHAIN},
        {"name": "x", "transforms": "t", "transforms.t.type": "no.such.Class"},
        {"name": "x", "exactly.once.support": "required", "transaction.boundary": "connector"},
    ],
)
def test_validation_is_kafkas(running, name, more):
    """Settings, their definitions, groups, order and defaults; which are wrong, and how many."""
    config = {"connector.class": name, "topic" if name == FILE_SOURCE else "topics": "t"} | more
    path = f"/connector-plugins/{name.rpartition('.')[2]}/config/validate"
    (status, theirs), (own_status, ours) = running.both("PUT", path, config)
    assert (status, own_status) == (200, 200)
    found = []
    for part in ("definition", "value"):
        parts = [[e[part] for e in answer["configs"] if e[part]] for answer in (theirs, ours)]
        found += differences(*parts)
    assert ours["name"] == theirs["name"]
    assert bool(ours["error_count"]) == bool(theirs["error_count"])  # of one setting Kafka says two
    assert set(ours["groups"]) == set(theirs["groups"])
    assert not found, "\n".join(map(str, found))


def test_plugins_are_kafkas(running):
    """All of theirs, with their types; ours are more."""
    (_, theirs), (_, ours) = running.both("GET", "/connector-plugins?connectorsOnly=false")
    known = {(each["class"], each["type"]) for each in ours}
    assert {(each["class"], each["type"]) for each in theirs} <= known


@pytest.mark.parametrize(
    "name",
    [FILE_SOURCE, FILE_SINK, STRINGS, JSON, *sorted(BUILT_IN[TRANSFORMS] | BUILT_IN[PREDICATES])],
)
def test_settings_of_plugins_are_kafkas(running, name):
    """GET .../config: of connectors, converters, and each transform."""
    path = f"/connector-plugins/{name.replace('$', '%24')}/config"
    (status, theirs), (own_status, ours) = running.both("GET", path)
    assert (status, own_status) == (200, 200)
    found = differences(theirs, ours)
    assert not found, "\n".join(map(str, found))
