"""`ottla connect` against a worker in the test's process."""

from __future__ import annotations

import pytest

from ottla import Producer
from ottla.connect.connect_worker import ConnectWorker
from ottla.testing import InProcessBroker, wait_until
from ottla.testing.connector_contract import worker_properties

SOURCE = "name=lines\nconnector.class=FileStreamSource\ntopic=lines\nfile={}\n"


@pytest.fixture
def world(tmp_path, ottla):
    """A broker, a worker, and a property file of a connector; `ottla` asks that worker."""
    with (
        InProcessBroker() as broker,
        ConnectWorker.standalone(worker_properties(broker, tmp_path)) as worker,
    ):
        (tmp_path / "in.txt").write_text("a\nb\n")
        file = tmp_path / "lines.properties"
        file.write_text(SOURCE.format(tmp_path / "in.txt"))

        def ask(*words):
            return ottla("connect", *words, "--url", worker.url)

        yield broker, ask, file


def test_connector_is_created_managed_and_deleted(world):
    """One action after the other, each with a line."""
    broker, ask, file = world

    assert ask("list").lines == ["there are no connectors"]
    assert ask("create", str(file)).lines == ["created lines"]
    broker.wait_for_records("lines", 2)
    wait_until(
        lambda: ask("list").lines == ["lines source RUNNING 0:RUNNING"], "the connector running"
    )
    assert ask("pause", "lines").lines == ["pause: lines"]
    assert ask("resume", "lines").status == 0
    assert ask("restart", "lines").lines == ["restarted lines"]
    assert ask("stop", "lines").status == 0
    wait_until(
        lambda: ask("status", "lines").lines[0].startswith("lines source STOPPED"),
        "the connector stopped",
    )
    assert ask("delete", "lines").lines == ["deleted lines"]


def test_offsets_are_shown_rewound_and_reset(world):
    """As lists that can be given back."""
    broker, ask, file = world
    ask("create", str(file))
    broker.wait_for_records("lines", 2)
    ask("stop", "lines")
    (shown,) = ask("offsets", "show", "lines").lines

    assert '"position": 4' in shown
    rewound = ask("offsets", "rewind", "lines", "--to", shown.replace("4", "2", 1))
    assert rewound.status in (0, 1)
    assert ask("offsets", "rewind", "lines", "--to", "[").status == 1
    assert "reset successfully" in ask("offsets", "reset", "lines").out
    assert ask("offsets", "show", "lines").lines == ["[]"]


def test_dry_run_creates_nothing(world):
    """It prints what is wrong, and its status says whether anything is."""
    _, ask, file = world

    assert ask("create", str(file), "--dry-run").status == 0
    wrong = ask("create", str(file), "--set", "batch.size=0", "--dry-run")
    assert (wrong.status, wrong.lines) == (1, ["batch.size=0: must be at least 1"])
    assert ask("list").lines == ["there are no connectors"]


def test_preview_prints_records(world):
    """Topic and value of each, and how many."""
    _, ask, file = world
    found = ask("preview", str(file), "-n", "1")

    assert (found.status, found.lines) == (0, ['lines: "a"'])
    assert "1 records, nothing was written" in found.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["status", "nobody"], "Connector nobody not found"),
        (["status"], "status takes one NAME"),
        (["offsets", "look", "x"], "offsets takes show|rewind|reset and one NAME"),
        (["create", "none.properties"], "cannot read the property file"),
    ],
)
def test_mistakes_are_one_line(world, words, error):
    """And status 1."""
    _, ask, _ = world
    found = ask(*words)

    assert found.status == 1
    assert error in found.err


def test_worker_that_is_not_there(ottla):
    """The address is in the error."""
    found = ottla("connect", "list", "--url", "http://127.0.0.1:1")
    assert found.status == 1
    assert "no worker answers at http://127.0.0.1:1" in found.err


def test_dead_letters_are_sent_back(world, ottla):
    """Once; the ones that do not say where they are from need --topic."""
    broker, _, _ = world
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("dead", b"1", headers={"__connect.errors.topic": b"orders"})
        producer.send("dead", b"2")
    words = ("connect", "redrive", "dead", "-b", broker.bootstrap_servers)
    first = ottla(*words)

    assert first.status == 1
    assert "1 partitions stopped at a record that does not say where it is from" in first.err
    assert ottla(*words, "--topic", "orders").lines == ["1 records were sent back"]
    assert ottla(*words).lines == ["0 records were sent back"]
    assert [record.value for record in broker.records("orders")] == [b"1", b"2"]
