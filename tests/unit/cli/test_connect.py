"""`ottla connect` against a worker in the test's process."""

from __future__ import annotations

import json

import pytest
from odd_worker import OddWorker

from ottla import Admin, NewTopic, Producer
from ottla.clients.dead_letter_headers import LARGEST_LETTER
from ottla.connect.connect_worker import ConnectWorker
from ottla.connect.tolerance import FOR_LETTERS
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
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
    """Offsets are lists that can be given back."""
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
    """A mistake is one line on stderr, and status 1."""
    _, ask, _ = world
    found = ask(*words)

    assert found.status == 1
    assert error in found.err


def test_worker_that_is_not_there(ottla):
    """The address is in the error."""
    found = ottla("connect", "list", "--url", "http://127.0.0.1:1")
    assert found.status == 1
    assert "no worker answers at http://127.0.0.1:1" in found.err


RUNNING = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
SHOW = ("offsets", "show", "x")


@pytest.fixture(scope="module")
def odd_worker():
    """A server that is no worker, at the address of one."""
    with OddWorker() as worker:
        yield worker


@pytest.mark.parametrize(
    ("words", "answer", "fault"),
    [
        (("list",), '["a"]', "the answer is a list, not an object"),
        (("list",), "<html>", "does not answer as Connect does: the answer is no JSON"),
        (("status", "x"), '{"tasks": {}}', "tasks is an object, not a list"),
        (("status", "x"), '{"tasks": [7]}', "task is a number, not an object"),
        (SHOW, '{"offsets": {"a": 1}}', "offsets is an object, not a list"),
        (SHOW, f'{{"offsets": [{{"offset": {"[" * 99}{"]" * 99}}}]}}', "deeper than 32 levels"),
        (("offsets", "reset", "x"), '{"message": []}', "message is a list, not a text"),
        (("create", "x.py:X", "--dry-run"), '{"configs": [{}, 1]}', "config is a number"),
    ],
)
def test_odd_answer_is_named(ottla, odd_worker, words, answer, fault):
    """The error names the server, the part, its kind and the kind that Connect gives it."""
    odd_worker.body(answer.encode())
    found = ottla("connect", *words, "--url", odd_worker.url.replace("//", "//me:s3cret@"))

    assert (found.status, fault in found.err, odd_worker.url in found.err) == (1, True, True)
    assert "s3cret" not in found.err


def test_odd_connector_does_not_hide_the_others(ottla, odd_worker):
    """Its name may be one that no stream can write, or have lines."""
    connectors = {"a": {"status": None}, "\ud800": {"status": RUNNING}, "y\n": {"status": RUNNING}}
    odd_worker.body(json.dumps(connectors).encode())
    found = ottla("connect", "list", "--url", odd_worker.url)

    assert found.lines == [r"y\x0a  RUNNING 0:RUNNING", r"\ud800  RUNNING 0:RUNNING"]
    assert (found.status, "a: the worker at" in found.err) == (1, True)
    assert "status is null, not an object" in found.err


ERROR = "__connect.errors."


@pytest.fixture
def letters(world, ottla):
    """Four letters in a queue, and what `ottla connect redrive` says about them."""
    broker, _, _ = world
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 1), NewTopic("dead", 1)])
    with Producer(broker.bootstrap_servers) as producer:
        for number, name in enumerate(("DataException", "DataException", "TimeoutException")):
            headers = {
                f"{ERROR}topic": b"orders",
                f"{ERROR}partition": b"0",
                f"{ERROR}offset": b"%d" % (number + 40),
                f"{ERROR}stage": b"TASK_PUT" if number else b"VALUE_CONVERTER",
                f"{ERROR}connector.name": b"sink",
                f"{ERROR}exception.class.name": name.encode(),
                f"{ERROR}exception.message": b"it\nfailed",
                "h": b"v%d" % number,
            }
            at_ms = 1_000_000 * (number + 1)
            value = b"%d" % number
            producer.send("dead", value, key=value, headers=headers, timestamp_ms=at_ms)
        producer.send("dead", b"3", timestamp_ms=4_000_000)

    def redrive(*words):
        return ottla("connect", "redrive", "dead", "-b", broker.bootstrap_servers, *words)

    return redrive, lambda: [record.value for record in broker.records("orders")]


def test_dead_letters_are_sent_back(letters):
    """Once; the ones that do not say where they are from need --topic, and are named."""
    redrive, sent = letters
    first = redrive()

    assert first.status == 1
    assert first.lines == [
        "3 records were sent back",
        "  2 to orders: DataException",
        "  1 to orders: TimeoutException",
        "1 left: it does not say where it is from",
    ]
    assert "1 in dead: it does not say where it is from (the first is dead-0 at" in first.err
    assert "at offset 3); give --topic, --to or --origin" in first.err
    assert redrive("--topic", "orders").lines[0] == "1 records were sent back"
    assert redrive().lines == ["0 records were sent back"]
    assert sent() == [b"0", b"1", b"2", b"3"]


def test_long_error_of_a_letter_is_cut(world, letters):
    """In its row and in the counts."""
    headers = {f"{ERROR}topic": b"orders", f"{ERROR}exception.class.name": b"E" * 100_000}
    with Producer(world[0].bootstrap_servers) as producer:
        producer.send("dead", b"4", headers=headers)
    redrive, _ = letters
    lines = redrive("--dry-run", "--at", "0:4").lines
    assert "  1 to orders: " + "E" * 500 in lines
    assert max(map(len, lines)) < 600


def test_dry_run_shows_what_would_be_sent(letters):
    """A line for each letter, the counts by reason, and nothing is sent or remembered."""
    redrive, sent = letters
    found = redrive("--dry-run", "--topic", "orders", "-n", "2")

    assert found.status == 0
    assert [line.split() for line in found.lines[:3]] == [
        ["LETTER", "FROM", "TO", "TRIES", "ERROR"],
        ["0:0", "orders-0@40", "orders", "0", "DataException:", "it\\x0afailed"],
        ["0:1", "orders-0@41", "orders", "0", "DataException:", "it\\x0afailed"],
    ]
    assert found.lines[3:] == ["2 records would be sent back", "  2 to orders: DataException"]
    assert sent() == []
    assert len(redrive("--topic", "orders").lines) == 4
    assert sent() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--at", "0:1"], [b"1"]),
        (["--at", "0:0", "--at", "0:2-"], [b"0", b"2"]),
        (["--at", "1"], []),
        (["--from", "orders:0:40-41"], [b"0", b"1"]),
        (["--from", "orders:1"], []),
        (["--from", "orders"], [b"0", b"1", b"2"]),
        (["--since", "1970-01-01T00:30Z", "--until", "1970-01-01T00:40Z"], [b"1"]),
        (["--error", "timeout"], [b"2"]),
        (["--error", "FAILED"], [b"0", b"1", b"2"]),
        (["--stage", "VALUE_CONVERTER"], [b"0"]),
        (["--connector", "sink", "--error", "Data"], [b"0", b"1"]),
        (["--connector", "other"], []),
        (["--key", "1"], [b"1"]),
        (["--header", "h=v2"], [b"2"]),
        (["--origin", "spring"], []),
        (["--origin", "H", "--to", "orders"], [b"0", b"1", b"2", b"3"]),
    ],
)
def test_some_letters_are_chosen(letters, words, values):
    """Letters are chosen by place, origin, time, failure, key or a header."""
    redrive, sent = letters
    redrive(*words)

    assert sent() == values


def test_errors_that_all_differ_are_counted_together(world, ottla):
    """Their messages may be as many as there are letters."""
    broker, _, _ = world
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 1), NewTopic("dead", 1)])
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(50):
            headers = {"source.topic": b"orders", "reason": b"%d is no line" % number}
            producer.send("dead", b"1", headers=headers)
    found = ottla("connect", "redrive", "dead", "-b", broker.bootstrap_servers)

    assert len(found.lines) == 22
    assert (found.lines[0], found.lines[-1]) == (
        "50 records were sent back",
        "  30 with other errors",
    )


def test_largest_record_goes_back(world, ottla):
    """Its letter was larger by the headers of the queue, and it goes with one of the tool."""
    broker, _, _ = world
    value = bytes(1_048_440)
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("large", 1), NewTopic("dead", 1, configs=FOR_LETTERS)])
    with Producer(broker.bootstrap_servers, max_request_size=LARGEST_LETTER) as producer:
        headers = {f"{ERROR}topic": b"large", f"{ERROR}exception.stacktrace": bytes(5000)}
        producer.send("dead", value, headers=headers)

    assert ottla("connect", "redrive", "dead", "-b", broker.bootstrap_servers).status == 0
    assert [record.value for record in broker.records("large")] == [value]


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OF_GUARDED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} required username="admin" password="a" user_admin="a" user_alice="s";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}
RIGHTS = {
    (ResourceType.TOPIC, "dead", AclOperation.READ),
    (ResourceType.TOPIC, "orders", AclOperation.WRITE),
    (ResourceType.TOPIC, "read-only", AclOperation.DESCRIBE),
    (ResourceType.GROUP, "connect-redrive-dead", AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, "connect-redrive-dead", AclOperation.WRITE),
}


def login(name, password):
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
    }


def test_letters_are_sent_on_a_secured_cluster(ottla, tmp_path):
    """Letters go with the login of a property file and no rights but those that the page names.

    A letter for a topic that may not be written, or not be seen, stays alone.
    """
    file = tmp_path / "alice.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in login("alice", "s").items()))
    with InProcessBroker(**OF_GUARDED) as broker:
        servers = broker.bootstrap_servers
        topics = ("orders", "read-only", "secret")
        with Admin(servers, login("admin", "a")) as admin:
            admin.create_topics([NewTopic(name, 1) for name in ("dead", *topics)])
            admin.create_acls(
                AclBinding(
                    ResourcePattern(kind, name, PatternType.LITERAL),
                    AccessControlEntry("User:alice", "*", right, AclPermissionType.ALLOW),
                )
                for kind, name, right in RIGHTS
            )
        with Producer(servers, login("admin", "a")) as producer:
            for name in (*topics, "orders"):
                producer.send("dead", b"1", headers={f"{ERROR}topic": name.encode()})
        found = ottla("connect", "redrive", "dead", "-b", servers, "--command-config", file)

    assert found.status == 1
    assert found.lines == [
        "2 records were sent back",
        "  2 to orders: no error is named",
        "1 left: its topic does not take it",
        "1 left: its topic is not there, or may not be described",
    ]
    assert "1 in dead: its topic does not take it (the first is dead-0 at offset 1" in found.err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--at", "x"], "--at takes PARTITION:17-20, not 'x'"),
        (["--at", "0:-3"], "--at takes PARTITION:17-20, not '0:-3'"),
        (["--from", "orders:0:x"], "--from takes TOPIC:PARTITION:17-20, not 'orders:0:x'"),
        (["--since", "soon"], "--since takes 1h, '5m ago', 2026-03-02 or 2026-03-02T08:00Z"),
        (["-n", "0"], "-n takes a number from 1 on, not '0'"),
        (["--header", "=v"], "'=v' is not in the form key=value"),
    ],
)
def test_mistakes_in_options_of_redrive(ottla, words, error):
    """They are found before a broker is asked."""
    found = ottla("connect", "redrive", "dead", "-b", "127.0.0.1:1", *words)

    assert found.status == 1
    assert error in found.err


def test_queue_that_is_not_there(world, ottla):
    """It is named, and not made."""
    broker, _, _ = world
    found = ottla("connect", "redrive", "gone", "-b", broker.bootstrap_servers)

    assert (found.status, "gone" in found.err) == (1, True)
    assert ottla("connect", "redrive", "gone", "-b", broker.bootstrap_servers).status == 1
