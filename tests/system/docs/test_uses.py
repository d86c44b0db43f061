"""The programs of docs/start/uses.md: what each of them did, counted."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys

import pytest
from kazoo.client import KazooClient
from page import ROOT, Page

from ottla import Producer

FOLDER = ROOT / "examples" / "uses"
LIMIT_S = 240


@pytest.fixture
def program(monkeypatch):
    """A function that imports one of the programs by its name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def run_file(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program as a process, as it is typed on the page."""
    return subprocess.run(
        [sys.executable, str(FOLDER / name), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def shown(name: str) -> list[list[str]]:
    """The lines that the page shows below each command that runs this program."""
    return [
        lines for command, lines in Page("docs/start/uses.md").conversations() if name in command
    ]


def without_numbers(lines: list[str]) -> list[str]:
    return [re.sub(r"\d+", "N", line) for line in lines]


def test_page_shows_every_program():
    """None is missing on the page, and none is only there."""
    named = set(re.findall(r"(\w+\.py)`\]", Page("docs/start/uses.md").text))

    assert named == {path.name for path in FOLDER.glob("*.py")}


def test_u19_orders_wait_and_are_handled_once_in_order(ottla_fresh_broker, program, capsys):
    """A burst before any worker runs, a worker that fails: each order is handled, in order."""
    outcome = program("message_queue").run(ottla_fresh_broker.bootstrap_servers)

    assert outcome["handled"] == list(range(600))
    assert all(outcome["by worker"])
    assert outcome["in order"]
    assert outcome["waiting"] == 0
    assert capsys.readouterr().out.splitlines() == shown("message_queue.py")[0]


def test_u21_lines_of_all_hosts_come_once_and_in_order(ottla_fresh_cluster, program, capsys):
    """While they are written, through a rotation; each is on three brokers."""
    outcome = program("ship_logs").run(ottla_fresh_cluster.bootstrap_servers, replicas=3)

    assert outcome["hosts"] == 20
    assert outcome["whole"]
    assert outcome["in sync"] == [3, 3, 3, 3]
    assert all(late_ms > 0 for late_ms in outcome["late"])
    printed = capsys.readouterr().out.splitlines()
    assert without_numbers(printed) == without_numbers(shown("ship_logs.py")[0])


@pytest.mark.ottla_settings(log_cleaner_backoff_ms=100)
def test_u24_failed_node_is_brought_back_by_fewer_records(ottla_fresh_broker, program, capsys):
    """A node that lost all reads what compaction has left, and equals the others."""
    outcome = program("resync_node").run(ottla_fresh_broker.bootstrap_servers)

    assert outcome["equal"]
    assert outcome["keys"] <= outcome["took"] < outcome["changes"]
    printed = capsys.readouterr().out.splitlines()
    assert without_numbers(printed) == without_numbers(shown("resync_node.py")[0])


@pytest.mark.parametrize(
    "name", ["message_queue", "hot_data", "application_log", "resync_node", "ship_logs"]
)
def test_second_run_says_that_its_topic_is_there(ottla_fresh_broker, program, name):
    """In one line, as a process prints it: it counts what it did, so it does not go on."""
    topic = program(name).TOPIC
    ottla_fresh_broker.create_topic(topic)
    done = run_file(f"{name}.py", "--bootstrap-server", ottla_fresh_broker.bootstrap_servers)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"topic '{topic}' already exists\n"


def test_u26_state_of_a_killed_process_is_taken_over(ottla_fresh_broker):
    """Killed within a transaction (a process, as it is killed): each payment counts once."""
    server = ["--bootstrap-server", ottla_fresh_broker.bootstrap_servers]
    killed = run_file("take_over.py", "--fail-after", "150", *server)
    taken_over = run_file("take_over.py", *server)

    assert killed.returncode == 1
    assert taken_over.returncode == 0, taken_over.stderr
    first, second = shown("take_over.py")
    assert killed.stdout.splitlines() == first
    assert taken_over.stdout.splitlines() == second


def test_u26_process_that_was_taken_over_is_refused(ottla_fresh_broker, program):
    """The first one is alive after all: its next transaction fails, and changes no balance."""
    take_over = program("take_over")
    servers = ottla_fresh_broker.bootstrap_servers
    take_over.pay(servers, 100)
    first = take_over.Ledger(servers)
    balances = take_over.run(servers, count=100)
    with Producer(servers) as producer:
        producer.send("payments", "1", key="account 0").result()

    with pytest.raises(take_over.KafkaError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        first.handle()
    first.consumer.close()
    first.producer.close()
    second = take_over.Ledger(servers)
    assert second.balances == balances
    assert second.restored == sum(balances.values()) == 100
    assert second.handle() == 1
    assert sum(second.balances.values()) == 101
    second.close()


def test_u28_hot_data_is_in_the_last_partition(ottla_fresh_broker, program):
    """The last partition has the hot readings and nothing else."""
    hot = program("hot_data").run(ottla_fresh_broker.bootstrap_servers, count=200)

    counts = [len(ottla_fresh_broker.records("readings", number)) for number in range(4)]
    assert counts[-1] == hot == 20
    assert sum(counts) == 200
    assert all(counts)
    last = ottla_fresh_broker.records("readings", 3)
    assert all(b"hot_data" in record.key for record in last)


def test_application_log_is_read_as_it_comes(ottla_fresh_broker, program, capsys):
    """Each line of an application that knows nothing of topics, with its errors."""
    levels = program("application_log").run(ottla_fresh_broker.bootstrap_servers)

    assert levels == {"INFO": 196, "ERROR": 4}
    assert capsys.readouterr().out.splitlines() == shown("application_log.py")[0]


def test_u29_offset_is_in_a_znode(start_broker, zookeeper, unique, program, capsys):
    """A restart emits what was under way, and what is new; a broker on ZooKeeper, for the znode."""
    connect = f"{zookeeper.connect}/{unique('storm')}"
    broker = start_broker(zookeeper_connect=connect)
    spouts = program("offset_in_znode")

    assert spouts.run(connect, "/storm", "word-spout") == {"begin": 0, "saved": 3}
    assert capsys.readouterr().out.splitlines() == shown("offset_in_znode.py")[0]
    client = KazooClient(connect)
    client.start()
    try:
        with Producer(broker.bootstrap_servers) as producer:
            for text in ("a", "b", "c"):
                producer.send("sentences", text).result()
        spout = spouts.Spout(client, "/storm", "word-spout")
        emitted = spout.emit()
        for offset, payload in emitted:
            if payload == b"b":
                spout.fail(offset, payload)
            else:
                spout.ack(offset)
        assert spout.commit() == 4
        assert spout.emit() == [(4, b"b")]
        spout.close()
        state = json.loads(client.get("/storm/word-spout/partition_0")[0])
    finally:
        client.stop()
        client.close()
    assert (state["topic"], state["partition"], state["offset"]) == ("sentences", 0, 4)
