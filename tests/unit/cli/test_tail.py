"""`ottla tail`."""

import json
from io import BytesIO, StringIO

import pytest
from fake_consumer import FakeConsumer

from ottla.cli.exact_json import exact_json
from ottla.cli.line_reader import JsonLineReader
from ottla.cli.terminal import Terminal
from ottla.structs import TopicPartition

NOW_MS = 3_600_000
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def consumer(clients, monkeypatch):
    """Records whose timestamps cross between the partitions; it is one o'clock."""
    monkeypatch.setattr(Terminal, "now_ms", lambda _: NOW_MS)
    monkeypatch.delenv("NO_COLOR", raising=False)
    clients.client = FakeConsumer(orders=2)
    for number in range(4):
        clients.client.add((ZERO, ONE)[number % 2], 1000 * number, b"v%d" % number, key=b"k")
    return clients.client


def test_last_records_are_in_the_order_of_their_times(tool, consumer):
    """Over all partitions, with time, place, key and value."""
    assert tool("tail", "orders", "-n", 3).lines == [
        "1970-01-01T00:00:01.000Z  1:0  k  v1",
        "1970-01-01T00:00:02.000Z  0:1  k  v2",
        "1970-01-01T00:00:03.000Z  1:1  k  v3",
    ]


def test_offsets_without_records_are_passed_over(tool, consumer):
    """Markers of transactions end the log: two records are found further in front."""
    consumer.ends = dict.fromkeys(consumer.logs, 40)

    assert [line.split()[-1] for line in tool("tail", "orders", "-n", 2).lines] == ["v2", "v3"]


def test_partition_without_a_leader_is_named_and_left_out(tool, consumer, monkeypatch):
    """The records of the others are shown."""
    partitions = consumer.partitions_for("orders")
    found = [partitions[0], partitions[1]._replace(leader=-1)]
    monkeypatch.setattr(consumer, "partitions_for", lambda topic: found)
    outcome = tool("tail", "orders", "-n", 2)

    assert "Error: partition orders-1 does not have a leader. It is skipped." in outcome.err
    assert [line.split()[-1] for line in outcome.lines] == ["v0", "v2"]


def test_since_begins_at_a_moment(tool, consumer):
    """All records from then on."""
    lines = tool("tail", "orders", "--since", "1970-01-01T00:00:02Z").lines

    assert [line.split()[-1] for line in lines] == ["v2", "v3"]


def test_since_before_1970_is_the_start_of_the_log(tool, consumer, monkeypatch):
    """One millisecond before 1970 is the protocol's number for the end of the log."""
    asked = []
    find = consumer.offsets_for_times
    monkeypatch.setattr(
        consumer, "offsets_for_times", lambda times: (asked.append(times), find(times))[1]
    )
    lines = tool("tail", "orders", "--since", "1969-12-31T23:59:59.999").lines

    assert {moment for times in asked for moment in times.values()} == {0}
    assert len(lines) == 4


@pytest.mark.parametrize(
    "words",
    [
        ("--key", "me"),
        ("--header", "kind=a"),
        ("--where", "customer.country=PT"),
        ("--where", "items.1=2", "--key", "me"),
    ],
)
def test_filters_pick_records(tool, consumer, words):
    """Records are picked by key, header and a path of the JSON, and by all of them together."""
    value = b'{"customer": {"country": "PT"}, "items": [1, 2]}'
    consumer.add(ZERO, 5000, value, key=b"me", headers=[("kind", b"a")])
    consumer.add(ZERO, 6000, b"[", key=b"other")

    (line,) = tool("tail", "orders", "--format", "json", *words).lines

    assert json.loads(line) == {
        "topic": "orders",
        "partition": 0,
        "offset": 2,
        "timestamp": "1970-01-01T00:00:05.000Z",
        "key": "me",
        "value": {"customer": {"country": "PT"}, "items": [1, 2]},
        "headers": [{"key": "kind", "value": "a"}],
    }


def test_json_can_be_read_back(tool, consumer):
    """Text, JSON, null and bytes come back from console-producer's reader as they were."""
    values = [b"text", b'{"a":[1]}', b'"quoted"', b"12", b"null", None, b"\xff\x00", b""]
    headers = [("h", b"1"), ("h", b"\xfe"), ("n", None)]
    for value in values:
        consumer.add(ZERO, NOW_MS, value, key=value, headers=headers)

    out = tool("tail", "orders", "-n", len(values), "--format", "json").out
    (found,) = JsonLineReader().read(BytesIO(out.encode()), StringIO())

    assert found == [(value, value, tuple(headers), NOW_MS) for value in values]


ODD_JSON = {
    "NaN": b'{"n": NaN}',
    "endless": b'{"n": [1e400, -1e400]}',
    "many digits": b'{"price": 0.1000000000000000055}',
    "a name twice": b'{"a": 1, "a": 2}',
    "half of a pair": rb'{"a": "\ud83d"}',
    "delete": b'{"a": "\x7f"}',
    "delete in text": b"a\x7fb",
    "C1": '{"a": "\u0085\u009b"}'.encode(),
    "turns text round": '{"a": "\u202e\u2028"}'.encode(),
    "large": b'{"n": 123456789012345678901234567890}',
}


@pytest.mark.parametrize("value", ODD_JSON.values(), ids=ODD_JSON)
@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_each_line_is_json_and_means_what_the_record_did(tool, consumer, value, tty):
    """Also for programs that are strict, and on a screen, on which nothing acts."""
    consumer.add(ZERO, NOW_MS, value)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    (line,) = tool("tail", "orders", "-n", 1, "--format", "json", tty=tty).lines
    json.loads(line, parse_constant=refuse)
    assert not set("\x7f\x85\x9b\u202e\u2028") & set(line)
    ((found,),) = JsonLineReader().read(BytesIO(line.encode()), StringIO())

    back = found[1]
    assert back == value or exact_json(back) == exact_json(value)


def test_following_goes_on_until_ctrl_c(tool, consumer):
    """-f prints what comes after the last records, once."""
    outcome = tool("tail", "orders", "-n", 0, "-f")

    assert (outcome.status, outcome.out) == (130, "")


def test_person_sees_colours_and_how_long_ago_and_no_escapes(tool, consumer):
    """A record cannot write to the terminal."""
    consumer.add(ZERO, NOW_MS - 3000, b"\x1b[31mRED\n")

    (line,) = tool("tail", "orders", "-n", 1, tty=True).lines

    assert line.startswith("\x1b[2m1970-01-01T00:59:57.000Z (3 s ago)  0:2\x1b[0m")
    assert "\\x1b[31mRED\\n" in line


def test_topic_is_not_created_by_looking(tool, consumer, clients):
    """A name that is nearly right is answered with the right one."""
    outcome = tool("tail", "oders")

    assert outcome.err == "ottla tail: topic 'oders' does not exist; did you mean orders?\n"
    assert clients.asked[0][2]["allow.auto.create.topics"] == "false"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--since", "someday"), "--since takes 1h"),
        (("--since", ""), "--since takes 1h"),
        (("-n", -1), "-n takes a number from 0 on, not '-1'"),
        (("--header", "x"), "--header takes a name and a value with = between, not 'x'"),
    ],
)
def test_options_that_do_not_fit_are_one_line(tool, consumer, words, line):
    """The option, the rule and the value."""
    assert line in tool("tail", "orders", *words).err


@pytest.mark.parametrize("words", [("--key", "\udcff"), ("--header", "kind=\udcff")])
def test_filters_pick_bytes_that_are_no_text(tool, consumer, words):
    """A shell hands them on as they are, as in `--key $'\\xff'`."""
    consumer.add(ZERO, 5000, b"it", key=b"\xff", headers=[("kind", b"\xff")])
    consumer.add(ZERO, 6000, b"other", key=b"\xfe")

    (line,) = tool("tail", "orders", "--format", "json", *words).lines

    assert json.loads(line)["value"] == "it"
