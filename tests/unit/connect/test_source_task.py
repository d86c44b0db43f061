"""A task while no broker takes what it sends, or its system is down."""

from __future__ import annotations

import pytest
from connect_kit import GATE, MoodySink, ask, standalone, state_of

from ottla import Producer
from ottla.testing import InProcessBroker, wait_until

LINES = 20_000
WAYS = {
    "whole batches": {},
    "record by record": {"producer.override.max.request.size": "1048576"},
}


@pytest.fixture
def broker():
    """A broker of the test's own, which is stopped and started."""
    with InProcessBroker() as running:
        yield running


@pytest.mark.parametrize("way", WAYS)
def test_full_buffer_is_waited_out(broker, tmp_path, caplog, way):
    """An outage that is longer than max.block.ms, with more to send than the buffer holds."""
    path = tmp_path / "lines"
    config = {
        "connector.class": "FileStreamSource",
        "file": str(path),
        "topic": "t",
        "producer.override.max.block.ms": "100",
        "producer.override.buffer.memory": "300000",
    }
    broker.create_topic("t")
    settings = {"connector_client_config_override_policy": "All"}
    with standalone(broker, tmp_path, **settings) as worker:
        path.write_text("first\n")
        ask(worker, "PUT", "/connectors/c/config", config | WAYS[way])
        broker.wait_for_records("t", 1)
        broker.stop()
        expected = [f"{number:0100}" for number in range(LINES)]
        with path.open("a") as file:
            file.writelines(f"{line}\n" for line in expected)
        wait_until(
            lambda: "c-0: sending to t: " in caplog.text,
            "a full buffer",
            seen=lambda: state_of(worker, "c"),
        )
        broker.start()
        found = broker.wait_for_records("t", LINES + 1)

        assert [record.value.decode() for record in found] == ["first", *expected]
        assert state_of(worker, "c") == ("RUNNING", "RUNNING")


OUTAGES = [
    *(("MoodySource", method) for method in ("start", "poll")),
    *(("MoodySink", method) for method in ("start", "open", "put")),
]


@pytest.mark.parametrize(("kind", "method"), OUTAGES)
def test_outage_is_waited_out(broker, tmp_path, caplog, kind, method):
    """A plug-in that raises TryAgainError is asked again; its task is RUNNING then."""
    GATE.clear()
    name = f"{kind}-{method}"
    config = {"name": name, "topic": name, "raises": f"outage in {method}"}
    config["connector.class"] = f"connect_kit.{kind}"
    if kind == "MoodySink":
        config["topics"] = name
        with Producer(broker.bootstrap_servers) as producer:
            producer.send(name, b"1")
    with standalone(broker, tmp_path) as worker:
        worker.create(config)
        said = f"{name}-0: {method} is tried again: "
        wait_until(lambda: caplog.text.count(said) > 1, "two attempts")
        GATE.set()

        if kind == "MoodySource":
            broker.wait_for_records(name, 3)
        else:
            wait_until(lambda: MoodySink.got.get(name) == ["1"], "the record")
        assert state_of(worker, name) == ("RUNNING", "RUNNING")


@pytest.mark.parametrize(("kind", "method"), OUTAGES)
def test_task_is_stopped_in_an_outage(broker, tmp_path, caplog, kind, method):
    """It ends between two attempts, and has not failed."""
    GATE.clear()
    name = f"stopped-{kind}-{method}"
    config = {"name": name, "topic": name, "raises": f"outage in {method}"}
    config["connector.class"] = f"connect_kit.{kind}"
    if kind == "MoodySink":
        config["topics"] = name
        with Producer(broker.bootstrap_servers) as producer:
            producer.send(name, b"1")
    with standalone(broker, tmp_path) as worker:
        worker.create(config)
        said = f"{name}-0: {method} is tried again: "
        wait_until(lambda: said in caplog.text, "an attempt")

    assert f"Task {name}-0 failed" not in caplog.text
