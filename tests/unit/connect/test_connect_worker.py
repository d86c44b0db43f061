"""A worker as a whole, against a broker in the test's process."""

from __future__ import annotations

import pytest
from connect_kit import (
    GATE,
    KEPT,
    NONSENSE,
    PLACES,
    MoodySink,
    Nonsense,
    ask,
    distributed,
    standalone,
    state_of,
    wait_for_state,
)

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.clients.producer.producer_batch import RECORD_OVERHEAD
from ottla.config.client_config import ProducerConfig
from ottla.connect import source_task
from ottla.connect.data import shown
from ottla.errors import ConfigError
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.runtime.io_thread import run_in_thread
from ottla.testing import InProcessBroker, wait_until

JSON = "org.apache.kafka.connect.json.JsonConverter"
KIT = "connect_kit"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
HEADERS_OF_LETTERS = {
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "__connect.errors.connector.name",
    "__connect.errors.task.id",
    "__connect.errors.stage",
    "__connect.errors.class.name",
    "__connect.errors.exception.class.name",
    "__connect.errors.exception.message",
    "__connect.errors.exception.stacktrace",
}
"""The names that Kafka's worker gives them."""


@pytest.fixture(scope="module")
def broker():
    """One broker for all tests of this file; each has topics of its own."""
    with InProcessBroker() as running:
        yield running


@pytest.fixture
def worker(broker, tmp_path):
    """A worker without connectors; what hangs at the end of a test is let go."""
    GATE.clear()
    with standalone(broker, tmp_path) as running:
        yield running
        GATE.set()


@pytest.fixture
def impatient_worker(broker, tmp_path):
    """A worker that soon leaves behind what does not stop, for connectors that never do."""
    GATE.clear()
    with standalone(broker, tmp_path, task_shutdown_graceful_timeout_ms=500) as running:
        yield running
        GATE.set()


def source(name, topic, **settings):
    return {"name": name, "connector.class": f"{KIT}.MoodySource", "topic": topic, **settings}


def sink(name, topics, **settings):
    return {"name": name, "connector.class": f"{KIT}.MoodySink", "topics": topics, **settings}


def values(broker, topic):
    return [record.value.decode() for record in broker.records(topic)]


def test_files_to_topic_to_file(broker, tmp_path):
    """The quick start: lines, lines that are appended, and a restart without a line twice."""
    read, written = tmp_path / "test.txt", tmp_path / "test.sink.txt"
    read.write_text("foo\nbar\n")
    file_source = {
        "name": "local-file-source",
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(read),
        "topic": "connect-test",
    }
    file_sink = {
        "name": "local-file-sink",
        "connector.class": "FileStreamSink",
        "tasks.max": "1",
        "file": str(written),
        "topics": "connect-test",
    }

    def wait_for(text):
        wait_until(
            lambda: written.exists() and written.read_text() == text,
            f"{text!r} in the file",
            seen=lambda: written.exists() and written.read_text(),
        )

    settings = {"key_converter": JSON, "value_converter": JSON}
    with standalone(broker, tmp_path, **settings) as worker:
        worker.create(file_source)
        worker.create(file_sink)
        wait_for("foo\nbar\n")
        with read.open("a") as file:
            file.write("Another line\n")
        wait_for("foo\nbar\nAnother line\n")
    with read.open("a") as file:
        file.write("after the restart\n")
    with standalone(broker, tmp_path, **settings) as worker:
        worker.create(file_source)
        worker.create(file_sink)
        wait_for("foo\nbar\nAnother line\nafter the restart\n")

    found = broker.records("connect-test")
    assert (found[0].key, found[0].value) == (
        None,
        b'{"schema":{"type":"string","optional":false},"payload":"foo"}',
    )
    assert len(found) == 4
    line = (tmp_path / "offsets").read_text()
    assert line == f'[["local-file-source",{{"filename":"{read}"}}],{{"position":39}}]\n'


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"producer.override.max.request.size": "2000000"},
        {
            "transforms": "only",
            "transforms.only.type": "RegexRouter",
            "transforms.only.regex": "nothing",
            "transforms.only.replacement": "x",
        },
    ],
)
def test_lines_of_a_file_arrive_in_order(broker, worker, tmp_path, more):
    """As batches, and as records where one is too long, a transform or the producer looks at it."""
    topic = f"in-order-{len(more)}"
    lines = [str(number) for number in range(5000)]
    lines[700] = "x" * 400_000
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    worker.create(
        {
            "name": topic,
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "lines.txt"),
            "topic": topic,
            **more,
        }
    )
    broker.wait_for_records(topic, len(lines))
    assert values(broker, topic) == lines


def test_tasks_share_the_work(broker, worker):
    """A connector splits its work, and each task keeps a place of its own."""
    worker.create(
        {
            "name": "split",
            "connector.class": f"{KIT}.Splitting",
            "tasks.max": "3",
            "topic": "split",
        }
    )
    wait_for_state(worker, "split", *["RUNNING"] * 4)
    broker.wait_for_records("split", 3)

    assert sorted(values(broker, "split")) == ["0", "1", "2"]
    wait_until(
        lambda: len(ask(worker, "GET", "/connectors/split/offsets")[1]["offsets"]) == 3,
        "three offsets",
    )


def trace(worker, name):
    """What the status of a connector or of its task says beside the state."""
    _, status = ask(worker, "GET", f"/connectors/{name}/status")
    return next(
        (each["trace"] for each in (status["connector"], *status["tasks"]) if "trace" in each), ""
    )


@pytest.mark.parametrize("method", ["tasks", "start", "poll", "stop"])
def test_source_that_hangs_leaves_others_alone(broker, impatient_worker, method):
    """Wherever a source hangs, REST answers, a neighbour works, and the worker can be closed."""
    worker = impatient_worker
    worker.create(source("hanging", f"hang-{method}", hangs=method))
    worker.create(source("neighbour", f"beside-{method}"))
    broker.wait_for_records(f"beside-{method}", 3)

    assert state_of(worker, "hanging")[0] == "RUNNING"
    if method != "stop":
        wait_until(lambda: trace(worker, "hanging"), "a word of the call")
        assert trace(worker, "hanging").startswith(f"{method} has not returned since 2")
        assert "GATE.wait()" in trace(worker, "hanging")
    assert ask(worker, "PUT", "/connectors/hanging/stop")[0] == 204
    wait_for_state(worker, "hanging", "STOPPED")
    assert ask(worker, "DELETE", "/connectors/hanging")[0] == 204


@pytest.mark.parametrize("method", ["start", "put", "stop"])
def test_sink_that_hangs_leaves_others_alone(broker, impatient_worker, method, caplog):
    """A call that never returns keeps the records of its own topics back, and nothing else."""
    worker, topic = impatient_worker, f"stuck-{method}"
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"1")
    # An error in put leads to stop, so that it hangs there before anybody's patience is tried.
    raises = "put" if method == "stop" else ""
    worker.create(sink("stuck", topic, hangs=method, raises=raises))
    worker.create(sink(f"free-{method}", topic))

    wait_until(lambda: MoodySink.got.get(f"free-{method}") == ["1"], "the other sink")
    assert state_of(worker, "stuck")[0] == "RUNNING"
    wait_until(lambda: trace(worker, "stuck"), "a word of the call")
    assert trace(worker, "stuck").startswith(f"{method} has not returned since 2")
    assert ask(worker, "DELETE", "/connectors/stuck")[0] == 204
    assert "Graceful stop of task stuck-0 failed" in caplog.text
    assert f"{method} has not returned since 2" in caplog.text


@pytest.mark.parametrize("make", [source, sink])
def test_stop_that_hangs_is_told_while_it_is_waited_for(broker, tmp_path, make):
    """REST answers for it and for its neighbour until task.shutdown.graceful.timeout.ms is over."""
    GATE.clear()
    topic = f"waited-for-{make.__name__}"
    with standalone(broker, tmp_path, task_shutdown_graceful_timeout_ms="600000") as worker:
        worker.create(source("neighbour", topic))
        worker.create(make("hanging", topic, hangs="stop"))
        wait_for_state(worker, "hanging", "RUNNING", "RUNNING")
        stopping = run_in_thread(lambda: ask(worker, "PUT", "/connectors/hanging/stop"), "ask")
        wait_until(lambda: trace(worker, "hanging"), "a word of the call")
        assert trace(worker, "hanging").startswith("stop has not returned since 2")
        assert state_of(worker, "neighbour") == ("RUNNING", "RUNNING")
        assert not stopping.done()
        GATE.set()
        assert stopping.result(60)[0] == 204
        wait_for_state(worker, "hanging", "STOPPED")


def test_call_that_returns_after_all_is_told_no_longer(broker, worker):
    """The state has been RUNNING all the while, as with Kafka; its trace comes and goes."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("slow", b"1")
    worker.create(sink("slow", "slow", hangs="put"))
    wait_until(lambda: trace(worker, "slow"), "a word of the call")
    assert state_of(worker, "slow") == ("RUNNING", "RUNNING")
    GATE.set()

    wait_until(lambda: not trace(worker, "slow"), "a status without it")
    wait_for_state(worker, "slow", "RUNNING", "RUNNING")
    assert MoodySink.got["slow"] == ["1"]


@pytest.mark.parametrize("method", ["start", "put"])
def test_sink_that_raises_is_failed_with_its_trace(broker, worker, method):
    """What it raised stands in the status of the task."""
    topic = f"raised-{method}"
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"1")
    worker.create(sink(f"raising-{method}", topic, raises=method))
    wait_for_state(worker, f"raising-{method}", "RUNNING", "FAILED")

    _, status = ask(worker, "GET", f"/connectors/raising-{method}/status")
    assert f"RuntimeError: raised in {method}" in status["tasks"][0]["trace"]


@pytest.mark.parametrize("method", ["tasks", "start", "poll"])
def test_source_that_raises_is_failed_with_its_trace(broker, worker, method):
    """What it raised stands in the status, of the connector or of the task."""
    worker.create(source("raising", f"raise-{method}", raises=method))
    states = ("FAILED",) if method == "tasks" else ("RUNNING", "FAILED")
    wait_for_state(worker, "raising", *states)

    _, status = ask(worker, "GET", "/connectors/raising/status")
    where = status["connector"] if method == "tasks" else status["tasks"][0]
    assert f"RuntimeError: raised in {method}" in where["trace"]


def test_failed_task_is_restarted(broker, worker):
    """A restart with tasks, of what failed only, brings a task back (KIP-745)."""
    worker.create(source("back", "back", raises="poll"))
    wait_for_state(worker, "back", "RUNNING", "FAILED")
    worker.create(source("back", "back"))

    broker.wait_for_records("back", 3)
    assert ask(worker, "POST", "/connectors/back/tasks/0/restart")[0] == 204
    status, answer = ask(
        worker, "POST", "/connectors/back/restart?includeTasks=true&onlyFailed=false"
    )
    assert (status, answer["name"]) == (202, "back")
    wait_for_state(worker, "back", "RUNNING", "RUNNING")


@pytest.mark.parametrize("make", [source, sink])
def test_stop_that_raises_is_no_failure(broker, worker, make, caplog):
    """A task that cannot close in order is gone all the same; the log says what it raised."""
    worker.create(source("polite", f"rude-{make.__name__}"))
    broker.wait_for_records(f"rude-{make.__name__}", 3)
    worker.create(make("rude", f"rude-{make.__name__}", raises="stop"))
    wait_for_state(worker, "rude", "RUNNING", "RUNNING")

    assert ask(worker, "PUT", "/connectors/rude/stop")[0] == 204
    wait_for_state(worker, "rude", "STOPPED")
    assert "Task rude-0 did not close in order: RuntimeError('raised in stop')" in caplog.text


def test_pause_and_resume(broker, worker):
    """A paused sink reads nothing, and goes on where it was."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("paused", b"1").result()
        worker.create(sink("paused", "paused"))
        wait_until(lambda: MoodySink.got.get("paused") == ["1"], "the first record")
        assert ask(worker, "PUT", "/connectors/paused/pause")[0] == 202
        wait_for_state(worker, "paused", "PAUSED", "PAUSED")
        producer.send("paused", b"2").result()
        assert ask(worker, "PUT", "/connectors/paused/resume")[0] == 202
        wait_until(lambda: MoodySink.got.get("paused") == ["1", "2"], "the second record")


def test_poison_goes_to_the_dead_letters(broker, worker):
    """Bytes, headers and place of a record that a sink refuses; the others arrive."""
    with Producer(broker.bootstrap_servers) as producer:
        for value in (b"good", b"poison", b"fine"):
            producer.send("mixed", value, key=b"k", headers={"h": b"v"})
    worker.create(
        sink(
            "careful",
            "mixed",
            raises="poison",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )
    )
    (letter,) = broker.wait_for_records("dead", 1)
    wait_until(lambda: MoodySink.got.get("careful") == ["good", "fine"], "the good ones")

    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["h"]) == (b"k", b"poison", b"v")
    named = {name.removeprefix("__connect.errors."): value for name, value in headers.items()}
    assert headers.keys() == {"h", *HEADERS_OF_LETTERS}
    assert named["class.name"] == f"{MoodySink.__module__}.MoodySink".encode()
    assert named["exception.class.name"] == b"builtins.ValueError"
    assert b"ValueError: a poison record" in named["exception.stacktrace"]
    assert (named["partition"], named["task.id"]) == (b"0", b"0")
    assert named["topic"] == b"mixed"
    assert named["offset"] == b"1"
    assert named["connector.name"] == b"careful"
    assert named["stage"] == b"TASK_PUT"
    assert named["exception.message"] == b"a poison record"


def test_largest_record_goes_to_the_dead_letters(broker, worker):
    """With default settings: its letter is larger than other topics take, by its headers."""
    limit = ProducerConfig.keys["max.request.size"].default - BATCH_OVERHEAD - RECORD_OVERHEAD
    key = bytes(limit - len(b"poison"))
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("large", b"poison", key=key)
    worker.create(
        sink(
            "roomy",
            "large",
            raises="poison",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead-large",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )
    )
    (letter,) = broker.wait_for_records("dead-large", 1)
    assert letter.key == key
    assert b"ValueError" in dict(letter.headers)["__connect.errors.exception.stacktrace"]


def test_offset_that_cannot_be_stored_fails_its_task_alone(broker, worker):
    """It is named with connector, task and value; the others store theirs, and all are shown."""
    worker.create(source("spoiler", "spoiled", raises="offset"))
    worker.create(source("neighbour", "neighbours"))
    wait_for_state(worker, "spoiler", "RUNNING", "FAILED")
    wait_until(
        lambda: (
            ask(worker, "GET", "/connectors/neighbour/offsets")[1]
            == {"offsets": [{"partition": {}, "offset": {"n": 2}}]}
        ),
        "the offset of the neighbour",
    )

    _, status = ask(worker, "GET", "/connectors/spoiler/status")
    assert (
        "connector spoiler, task 0: source_offset={'n': Decimal('0')}: must have"
        in (status["tasks"][0]["trace"])
    )
    assert ask(worker, "GET", "/connectors/spoiler/offsets") == (200, {"offsets": []})


@pytest.mark.parametrize("method", ["tasks", "start", "poll", "stop"])
def test_connector_that_exits_ends_nothing_else(broker, worker, method):
    """SystemExit is its own end: the worker's loop, REST and other connectors live."""
    name = f"exits-in-{method}"
    worker.create(source(name, f"{name}-topic", raises=f"exit in {method}"))
    worker.create(source(f"beside-{method}", f"beside-{method}"))
    broker.wait_for_records(f"beside-{method}", 3)
    states = {"tasks": ("FAILED",), "stop": ("RUNNING", "RUNNING")}
    wait_for_state(worker, name, *states.get(method, ("RUNNING", "FAILED")))

    assert ask(worker, "DELETE", f"/connectors/{name}")[0] == 204
    assert ask(worker, "GET", "/health")[0] == 200


def nonsense(name, topic, raises, kind="Nonsense", **more):
    made = {"name": name, "connector.class": f"{KIT}.{kind}", "raises": raises}
    return made | {"topic" if kind == "Nonsense" else "topics": topic} | more


@pytest.mark.parametrize("what", NONSENSE)
def test_tasks_that_are_no_settings_fail_their_connector(worker, what):
    """Its state says so, and not only the log: it would be RUNNING without a task."""
    worker.create(nonsense("split", "nowhere", what))
    wait_for_state(worker, "split", "FAILED")

    trace = ask(worker, "GET", "/connectors/split/status")[1]["connector"]["trace"]
    assert "tasks returned" in trace


def test_connector_that_always_asks_to_be_split_again_is_asked_now_and_then(broker, worker):
    """Others are served meanwhile; each request would be a task of the worker's loop."""
    worker.create(nonsense("asker", "asked", "asks without end"))
    wait_until(lambda: Nonsense.asked.count("asker") > 1, "a second question")
    worker.create(source("beside-asker", "beside-asker"))
    broker.wait_for_records("beside-asker", 3)

    assert Nonsense.asked.count("asker") < 50


@pytest.mark.parametrize("place", PLACES)
def test_record_for_a_partition_that_is_not_there_is_left_out_or_ends_the_task(
    broker, worker, monkeypatch, place
):
    """It is waited for, as partitions are added, but not for ever, and it holds up no other."""
    monkeypatch.setattr(source_task, "STANDING_MS", 1)
    worker.create(nonsense(f"strict-{place}", f"strict-{place}", place))
    worker.create(
        nonsense(f"loose-{place}", f"loose-{place}", place, **{"errors.tolerance": "all"})
    )

    assert [each.value for each in broker.wait_for_records(f"loose-{place}", 2)] == [b"0", b"2"]
    wait_for_state(worker, f"strict-{place}", "RUNNING", "FAILED")
    trace = ask(worker, "GET", f"/connectors/strict-{place}/status")[1]["tasks"][0]["trace"]
    assert "at {'n': 1}" in trace
    assert f"partition={shown(PLACES[place])}: " in trace


@pytest.mark.parametrize("kept", KEPT)
def test_offsets_that_are_none_end_the_task_of_their_sink(broker, worker, kept):
    """They are not committed: a group with an offset of -1 could not be read by anybody."""
    name = f"keeper-{kept.replace(' ', '-')}"
    produced(broker, name, 1, 2)
    worker.create(nonsense(name, name, kept, "NonsenseSink"))
    wait_for_state(worker, name, "RUNNING", "FAILED")

    trace = ask(worker, "GET", f"/connectors/{name}/status")[1]["tasks"][0]["trace"]
    assert "must be offsets, from 0 on" in trace
    assert ask(worker, "GET", f"/connectors/{name}/offsets") == (200, {"offsets": []})


def produced(broker, topic, *values):
    with Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, str(value))


def test_connector_that_is_made_again_goes_on_unless_its_offsets_were_deleted(broker, worker):
    """A source by its stored offsets, a sink by those of its group."""
    produced(broker, "goes-on-in", 1, 2)
    made = source("goes-on", "goes-on-out"), sink("goes-on-sink", "goes-on-in")
    offsets = [
        [{"partition": {}, "offset": {"n": 2}}],
        [
            {
                "partition": {"kafka_topic": "goes-on-in", "kafka_partition": 0},
                "offset": {"kafka_offset": 2},
            }
        ],
    ]
    places = [f"/connectors/{each['name']}" for each in made]

    def are_stored():
        found = [ask(worker, "GET", f"{place}/offsets")[1] for place in places]
        return found == [{"offsets": each} for each in offsets]

    MoodySink.got.pop("goes-on-sink", None)
    for config in made:
        worker.create(config)
    wait_until(are_stored, "offsets")
    for place, config in zip(places, made, strict=True):
        assert ask(worker, "DELETE", place)[0] == 204
        worker.create(config | {"count": "4"})
    produced(broker, "goes-on-in", 3)
    wait_until(lambda: len(MoodySink.got["goes-on-sink"]) == 3, "what came since")
    broker.wait_for_records("goes-on-out", 4)
    assert values(broker, "goes-on-out") == ["0", "1", "2", "3"]
    assert MoodySink.got["goes-on-sink"] == ["1", "2", "3"]

    for place, config in zip(places, made, strict=True):
        assert ask(worker, "PUT", f"{place}/stop")[0] == 204
        wait_until(lambda place=place: ask(worker, "DELETE", f"{place}/offsets")[0] == 200, "stop")
        assert ask(worker, "DELETE", place)[0] == 204
        worker.create(config)
    broker.wait_for_records("goes-on-out", 7)
    wait_until(lambda: len(MoodySink.got["goes-on-sink"]) == 6, "all of it again")


def deleted(broker, topic):
    """Delete a topic; the next one that asks for it has it created."""
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics([topic])


def test_topic_that_is_made_again_is_read_from_its_beginning(broker, worker):
    """While the sink runs, though the new log is longer than what was read of the former."""
    produced(broker, "remade", "old-0", "old-1")
    worker.create(sink("remade-sink", "remade"))
    got = MoodySink.got
    wait_until(lambda: got.get("remade-sink") == ["old-0", "old-1"], "the former topic")
    deleted(broker, "remade")
    new = [f"new-{number}" for number in range(5)]
    produced(broker, "remade", *new)

    wait_until(
        lambda: got["remade-sink"][2:] == new,
        "all of the new one",
        seen=lambda: got["remade-sink"],
    )
    place = {"kafka_topic": "remade", "kafka_partition": 0}
    wait_until(
        lambda: (
            ask(worker, "GET", "/connectors/remade-sink/offsets")[1]["offsets"]
            == [{"partition": place, "offset": {"kafka_offset": 5}}]
        ),
        "its offsets",
    )


@pytest.mark.parametrize("is_up", [True, False])
def test_files_of_a_topic_that_is_made_again_are_complete(broker, tmp_path, is_up):
    """With the worker up or down; a sink keeps offsets itself, and knows whose they are."""
    topic, folder = f"lake-{is_up}", tmp_path / "lake"
    config = {
        "name": topic,
        "connector.class": "FilesSink",
        "topics": topic,
        "url": f"file://{folder}",
        "format": "jsonl",
        "records.per.file": "2",
    }

    def texts():
        return [
            line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().split()
        ]

    produced(broker, topic, *range(4))
    with standalone(broker, tmp_path) as worker:
        worker.create(config)
        wait_until(lambda: texts() == ['"0"', '"1"', '"2"', '"3"'], "the former topic")
        if is_up:
            deleted(broker, topic)
            produced(broker, topic, *range(10, 16))
            wait_until(lambda: texts()[4:] == [f'"{n}"' for n in range(10, 16)], "the new one")
            return
    deleted(broker, topic)
    produced(broker, topic, *range(10, 16))
    with standalone(broker, tmp_path) as worker:
        worker.create(config)
        wait_until(lambda: texts()[4:] == [f'"{n}"' for n in range(10, 16)], "the new one")


def test_topics_are_chosen_by_a_pattern_of_javas(broker, worker):
    """Named groups as Java writes them; the whole name has to match."""
    with Producer(broker.bootstrap_servers) as producer:
        for topic in ("chosen-1", "chosen-2", "chosen-2-not"):
            producer.send(topic, topic.encode())
    config = sink("choosing", "", **{"topics.regex": r"(?<word>chosen)-\d"})
    worker.create({key: value for key, value in config.items() if key != "topics"})

    wait_until(
        lambda: sorted(MoodySink.got.get("choosing", [])) == ["chosen-1", "chosen-2"],
        "both topics",
    )


@pytest.mark.ottla_settings(auto_create_topics_enable=False)
def test_dead_letters_whose_topic_was_deleted_make_it_again(ottla_fresh_broker, tmp_path, caplog):
    """Offsets do not wait without end for a letter that has no topic any longer."""
    broker = ottla_fresh_broker
    broker.create_topic("mixed")
    settings = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    place = TopicPartition("mixed", 0)
    with (
        standalone(broker, tmp_path) as worker,
        Producer(broker.bootstrap_servers) as producer,
        Consumer(broker.bootstrap_servers, {"group.id": "connect-again"}) as consumer,
    ):
        worker.create(sink("again", "mixed", raises="poison", **settings))
        producer.send("mixed", b"poison")
        producer.flush()
        assert len(broker.wait_for_records("dead", 1)) == 1
        with Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics(["dead"])
        for value in (b"poison", b"good"):
            producer.send("mixed", value)
        producer.flush()
        wait_until(
            lambda: [each.offset for each in consumer.committed([place]).values()] == [3],
            "the offset behind all",
        )
        assert len(broker.records("dead")) == 1
    assert MoodySink.got["again"] == ["good"]
    assert "dead was deleted: it is created again" in caplog.text


@pytest.mark.parametrize("is_exactly_once", [False, True])
@pytest.mark.ottla_settings(auto_create_topics_enable=False)
def test_topic_of_a_source_that_was_deleted_is_made_again(
    ottla_fresh_broker, tmp_path, monkeypatch, caplog, is_exactly_once
):
    """By the settings that it was made by; what was on its way arrives in it."""
    monkeypatch.setattr("ottla.connect.source_task.STANDING_MS", 100)
    broker, file = ottla_fresh_broker, tmp_path / "lines"
    file.write_text("one\n")
    settings = {
        "name": "lines",
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": "lines",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }
    starts = (
        distributed(broker, exactly_once_source_support="enabled")
        if is_exactly_once
        else standalone(broker, tmp_path)
    )
    with starts as worker, Admin(broker.bootstrap_servers) as admin:
        given = "PUT", "/connectors/lines/config", settings
        wait_until(lambda: ask(worker, *given)[0] in (200, 201), "the connector")
        assert len(broker.wait_for_records("lines", 1)) == 1
        admin.delete_topics(["lines"])
        with file.open("a") as more:
            more.write("two\nthree\n")
        wait_until(lambda: "lines" in admin.list_topics(), "the topic to be there again")
        found = broker.wait_for_records("lines", 2)
    assert [record.value for record in found] == [b"two", b"three"]
    assert "nothing has arrived" in caplog.text


def test_bytes_that_cannot_be_read_go_to_the_dead_letters(broker, worker):
    """A converter's error is the record's own."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("unreadable", b"\xff")
        producer.send("unreadable", b"text")
    worker.create(
        sink(
            "reader",
            "unreadable",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead-unreadable",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )
    )

    (letter,) = broker.wait_for_records("dead-unreadable", 1)
    assert letter.value == b"\xff"
    headers = dict(letter.headers)
    assert headers.keys() == HEADERS_OF_LETTERS
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert headers["__connect.errors.class.name"] == STRINGS.encode()
    assert headers["__connect.errors.offset"] == b"0"
    wait_until(lambda: MoodySink.got.get("reader") == ["text"], "the other record")


def test_letters_are_there_before_the_sink_is_given_what_follows(broker, worker, monkeypatch):
    """A sink that keeps offsets itself, in its files, would be behind a letter on its way."""
    seen = []
    put = MoodySink.put

    def look(self, records):
        seen.append(len(broker.records("dead-before")))
        put(self, records)

    monkeypatch.setattr(MoodySink, "put", look)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("before", b"\xff")
        producer.send("before", b"text")
    worker.create(
        sink(
            "late",
            "before",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead-before",
                "errors.deadletterqueue.topic.replication.factor": "1",
                "producer.override.linger.ms": "60000",
            },
        )
    )

    wait_until(lambda: MoodySink.got.get("late") == ["text"], "the other record")
    assert seen[-1] == 1


def test_outage_sends_nothing_to_the_dead_letters(broker, worker):
    """A sink whose system is down keeps its records, whatever is tolerated."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("outage", b"1")
    worker.create(
        sink(
            "patient",
            "outage",
            raises="outage in put",
            **{
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "dead-outage",
                "errors.deadletterqueue.topic.replication.factor": "1",
            },
        )
    )
    wait_for_state(worker, "patient", "RUNNING", "RUNNING")
    GATE.set()

    wait_until(lambda: MoodySink.got.get("patient") == ["1"], "the record after the outage")
    assert broker.records("dead-outage") == []


def test_error_that_is_not_tolerated_ends_the_task(broker, worker):
    """Without errors.tolerance=all a record that cannot be read fails the task."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("strict", b"\xff")
    worker.create(sink("strict", "strict"))
    wait_for_state(worker, "strict", "RUNNING", "FAILED")

    trace = ask(worker, "GET", "/connectors/strict/tasks/0/status")[1]["trace"]
    assert "Tolerance exceeded in error handler" in trace


def test_what_a_source_cannot_read_is_passed_over_if_it_may_be(broker, worker, caplog):
    """The record's place counts, so that a restart does not meet it again; others arrive.

    The first one is in the log, as there are no dead letters of a source.
    """
    config = source("unread", "read", raises="unread", count=4)
    worker.create(config | {"errors.tolerance": "all"})

    assert [each.value for each in broker.wait_for_records("read", 2)] == [b"0", b"2"]
    place = "/connectors/unread/offsets"
    wait_until(
        lambda: [each["offset"] for each in ask(worker, "GET", place)[1]["offsets"]] == [{"n": 3}],
        "the offset behind the last one",
    )
    assert state_of(worker, "unread") == ("RUNNING", "RUNNING")
    assert caplog.text.count("number 1 cannot be read") == 1
    assert "number 3 cannot be read" not in caplog.text


def test_what_a_source_cannot_read_ends_its_task_by_default(broker, worker):
    """The trace has the source's own words."""
    worker.create(source("strict-unread", "strict-read", raises="unread"))
    wait_for_state(worker, "strict-unread", "RUNNING", "FAILED")

    trace = ask(worker, "GET", "/connectors/strict-unread/tasks/0/status")[1]["trace"]
    assert "TASK_POLL by MoodySource failed after 1 attempts for {} at {'n': 1}: number 1 " in trace


def test_offsets_of_a_stopped_source_can_be_set(broker, worker):
    """Only while it is stopped (KIP-875); it goes on there when it is resumed."""
    worker.create(source("back-in-time", "again"))
    broker.wait_for_records("again", 3)
    path = "/connectors/back-in-time/offsets"
    body = {"offsets": [{"partition": {}, "offset": {"n": 0}}]}

    assert ask(worker, "PATCH", path, body)[0] == 400
    assert ask(worker, "PUT", "/connectors/back-in-time/stop")[0] == 204
    assert ask(worker, "GET", path)[1] == {"offsets": [{"partition": {}, "offset": {"n": 2}}]}
    status, answer = ask(worker, "PATCH", path, body)
    assert (status, "altered successfully" in answer["message"]) == (200, True)
    assert ask(worker, "PUT", "/connectors/back-in-time/resume")[0] == 202
    broker.wait_for_records("again", 5)
    assert values(broker, "again") == ["0", "1", "2", "1", "2"]
    assert ask(worker, "PUT", "/connectors/back-in-time/stop")[0] == 204
    assert ask(worker, "DELETE", path)[0] == 200
    assert ask(worker, "GET", path)[1] == {"offsets": []}


def test_offsets_of_a_stopped_sink_can_be_set(broker, worker):
    """They are those of its group."""
    with Producer(broker.bootstrap_servers) as producer:
        for value in (b"1", b"2"):
            producer.send("sunk", value)
    worker.create(sink("sunk", "sunk"))
    wait_until(lambda: MoodySink.got.get("sunk") == ["1", "2"], "both records")
    assert ask(worker, "PUT", "/connectors/sunk/stop")[0] == 204
    place = {"kafka_topic": "sunk", "kafka_partition": 0}
    path = "/connectors/sunk/offsets"

    assert ask(worker, "GET", path)[1] == {
        "offsets": [{"partition": place, "offset": {"kafka_offset": 2}}]
    }
    for wrong in (-1, 1.5, True, "1_0", None, [], 2**63, "x"):
        body = {"offsets": [{"partition": place, "offset": {"kafka_offset": wrong}}]}
        status, answer = ask(worker, "PATCH", path, body)
        assert (status, "must have kafka_topic" in answer["message"]) == (400, True), wrong
    for wrong in (-1, 0.5, None, 2**31):
        other = place | {"kafka_partition": wrong}
        body = {"offsets": [{"partition": other, "offset": {"kafka_offset": 1}}]}
        assert ask(worker, "PATCH", path, body)[0] == 400, wrong
    body = {"offsets": [{"partition": place, "offset": {"kafka_offset": 1}}]}
    assert ask(worker, "PATCH", path, body)[0] == 200
    assert ask(worker, "PUT", "/connectors/sunk/resume")[0] == 202
    wait_until(lambda: MoodySink.got.get("sunk") == ["1", "2", "2"], "the second one again")


def test_source_creates_its_topic(broker, worker):
    """With the partitions and settings of the group that the topic is in (KIP-158)."""
    groups = {
        "topic.creation.groups": "wide",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.wide.include": "made-.*",
        "topic.creation.wide.partitions": "3",
        "topic.creation.wide.retention.ms": "1000",
    }
    worker.create(source("maker", "made-here", **groups))
    broker.wait_for_records("made-here", 3)

    from ottla import Admin

    with Admin(broker.bootstrap_servers) as admin:
        described = admin.describe_topics(["made-here"])["made-here"]
    assert len(described.partitions) == 3


def test_values_come_from_a_provider(broker, tmp_path):
    """A secret is shown as the reference that was given, and used as what it stands for."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("topic=from-a-file\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    with standalone(
        broker, tmp_path, config_providers="file", config_providers_file_class=provider
    ) as worker:
        worker.create(source("secretive", f"${{file:{secrets}:topic}}"))
        broker.wait_for_records("from-a-file", 3)

        shown = ask(worker, "GET", "/connectors/secretive/config")[1]["topic"]
        tasks = ask(worker, "GET", "/connectors/secretive/tasks")[1]
    assert shown == f"${{file:{secrets}:topic}}"
    assert [task["config"]["topic"] for task in tasks] == [shown]


def test_secret_of_a_provider_is_in_nothing_that_is_said_of_an_error(broker, tmp_path, caplog):
    """Not in a status, which REST and a topic have, not in a dead letter, and not in the log."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("topic=s3cret-of-db\n")
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    reference = f"${{file:{secrets}:topic}}"
    letters = "errors.deadletterqueue"
    settings = {
        "name": "telltale",
        "connector.class": f"{KIT}.Telltale",
        "topics": "told",
        "topic": reference,
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        f"{letters}.topic.name": "dead-told",
        f"{letters}.topic.replication.factor": "1",
        f"{letters}.context.headers.enable": "true",
    }
    with (
        standalone(
            broker, tmp_path, config_providers="file", config_providers_file_class=provider
        ) as worker,
        Producer(broker.bootstrap_servers) as producer,
    ):
        producer.send("told", b"poison")
        worker.create(settings)
        (letter,) = broker.wait_for_records("dead-told", 1)
        producer.send("told", b"last")
        wait_for_state(worker, "telltale", "RUNNING", "FAILED")
        _, status = ask(worker, "GET", "/connectors/telltale/status")
    trace, headers = status["tasks"][0]["trace"], dict(letter.headers)

    assert f"ValueError: last is not for {reference}" in trace
    message = headers["__connect.errors.exception.message"].decode()
    assert message == f"poison is not for {reference}"
    assert f"is not for {reference}" in caplog.text
    assert "s3cret" not in f"{trace} {headers} {caplog.text}"


def test_worker_without_a_cluster_says_so(tmp_path):
    """A wrong address is an error at the start."""

    class Nowhere:
        bootstrap_servers = "127.0.0.1:1"

    with pytest.raises(ConfigError, match=r"bootstrap\.servers: no broker answers there"):
        standalone(Nowhere, tmp_path, admin_default_api_timeout_ms=200)


def test_listener_that_is_taken_is_named(broker, worker, tmp_path):
    """The error has the setting."""
    taken = worker.url.rstrip("/")
    with pytest.raises(ConfigError, match=r"listeners=.*cannot be listened at"):
        standalone(broker, tmp_path, listeners=taken)


def test_connector_needs_a_name(worker):
    """So that there is something to keep offsets under."""
    with pytest.raises(ConfigError, match="name: must be set"):
        worker.create({"connector.class": f"{KIT}.MoodySource"})
