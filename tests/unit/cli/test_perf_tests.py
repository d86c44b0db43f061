"""The performance tests: Kafka's lines, against a broker in this process and without one."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.cli.consumer_perf_test import ConsumerStats, date_format
from ottla.cli.producer_perf_test import ProducerStats, Throttle, percentile, text_payloads
from ottla.cli.terminal import Clients

SENT = (
    r"200 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\.\n"
)
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
COLUMNS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
)


@pytest.fixture
def servers(ottla_fresh_broker, clients) -> Iterator[str]:
    """The address of a broker; commands get real clients."""
    real = Clients()
    clients.admin, clients.producer, clients.consumer = real.admin, real.producer, real.consumer
    return ottla_fresh_broker.bootstrap_servers


def produce(ottla, servers, *words):
    usual = ("--topic", "t", "--num-records", 200, "--throughput", -1)
    return ottla(
        "producer-perf-test", *usual, *words, "--producer-props", f"bootstrap.servers={servers}"
    )


def test_records_of_a_size_are_produced(ottla, servers, ottla_fresh_broker):
    """The last line is Kafka's; the records have the size, and differ."""
    outcome = produce(ottla, servers, "--record-size", 30)

    assert re.fullmatch(SENT, outcome.out), outcome
    values = [record.value for record in ottla_fresh_broker.records("t")]
    assert {len(value) for value in values} == {30}
    assert len(set(values)) == len(values) == 200


def test_records_are_produced_in_transactions(ottla, servers, ottla_fresh_broker):
    """A transaction that lasts a millisecond is followed by another; all are committed."""
    outcome = produce(ottla, servers, "--payload-monotonic", "--transaction-duration-ms", 1)

    assert re.fullmatch(SENT, outcome.out), outcome
    values = [int(record.value) for record in ottla_fresh_broker.records("t")]
    assert values == list(range(200))


def test_payloads_come_from_a_file(ottla, servers, ottla_fresh_broker, tmp_path):
    """Its pieces are sent one after the other, and its name and their number are printed."""
    (tmp_path / "payloads").write_text("a;b;c;")
    outcome = produce(
        ottla, servers, "--payload-file", tmp_path / "payloads", "--payload-delimiter", ";"
    )

    first, second, _ = outcome.lines
    assert first == f"Reading payloads from: {tmp_path}/payloads"
    assert second == "Number of messages read: 3"
    assert {record.value for record in ottla_fresh_broker.records("t")} == {b"a", b"b", b"c"}


def test_records_that_are_not_delivered_are_told(ottla, servers, ottla_fresh_broker):
    """They are not among those that were sent."""
    ottla_fresh_broker.create_topic("t", max_message_bytes="100")
    outcome = produce(ottla, servers, "--record-size", 300)

    assert outcome.status == 1
    assert outcome.out.startswith("0 records sent")
    assert "200 records were not delivered" in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "exactly one of --record-size, --payload-file, --payload-monotonic is needed"),
        (("--record-size", "0"), "--record-size takes a number from 1 to 268435456, not '0'"),
        (("--payload-file", "/no/such"), "cannot read the payload file /no/such"),
    ],
)
def test_what_is_sent_must_be_clear(ottla, words, complaint):
    """One line says what is wrong."""
    assert complaint in produce(ottla, "localhost:9092", *words).err


def test_servers_of_the_producer_are_needed(ottla):
    """They are a setting, not an option of their own."""
    words = ("--topic", "t", "--num-records", 1, "--throughput", -1, "--payload-monotonic")

    assert "needs bootstrap.servers=HOST:PORT" in ottla("producer-perf-test", *words).err


def test_topic_is_consumed(ottla, servers):
    """A line of columns and one of numbers, with the records that were read."""
    produce(ottla, servers, "--record-size", 30)
    words = ("--topic", "t", "--messages", 200, "--bootstrap-server", servers)
    outcome = ottla("consumer-perf-test", *words)

    assert outcome.out.startswith(f"start.time, end.time, {COLUMNS}")
    row = outcome.lines[1].split(", ")
    assert re.fullmatch(MOMENT, row[0])
    assert re.fullmatch(MOMENT, row[1])
    assert row[4] == "200"
    assert row[2] == f"{6000 / 1024 / 1024:.4f}"


def test_metrics_of_the_clients_are_printed(ottla, servers):
    """After the totals, with --print-metrics."""
    sent = produce(ottla, servers, "--record-size", 30, "--print-metrics")
    words = ("--topic", "t", "--messages", 200, "--bootstrap-server", servers, "--print-metrics")
    read = ottla("consumer-perf-test", *words)

    assert re.search(r"^producer-metrics:record-send-total +: 200\.000$", sent.out, re.MULTILINE)
    name = "consumer-fetch-manager-metrics:records-consumed-total"
    assert re.search(rf"^{name} +: \d+\.000$", read.out, re.MULTILINE)


def test_too_few_records_are_told(ottla, servers):
    """After the timeout, in Kafka's words, and with what has come."""
    produce(ottla, servers, "--record-size", 30)
    words = ("--topic", "t", "--messages", 201, "--broker-list", servers, "--timeout", 1)
    outcome = ottla("consumer-perf-test", *words, "--hide-header")

    assert outcome.lines[0].startswith(
        "WARNING: Exiting before consuming the expected number of messages: timeout (1 ms) exceeded"
    )


def test_latency_is_measured_from_end_to_end(ottla, servers):
    """The topic is made; each record is read before the next one is sent."""
    outcome = ottla("e2e-latency", servers, "fresh", 20, "all", 10)

    told, first, average, percentiles = outcome.lines
    assert told == (
        'Topic "fresh" does not exist. Will create topic with 1 partition(s) and replication '
        "factor = 1"
    )
    assert re.fullmatch(r"0\t[\d.]+", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", percentiles)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("t", 10, 0, 10), "requires synchronous acknowledgement"),
        (("t", 0, 1, 10), "num_messages must be a number from 1 to 268435456, not '0'"),
        (("t", 10, 1, "ten"), "message_size must be a number from 1 to 268435456, not 'ten'"),
    ],
)
def test_latency_words_are_checked(ottla, words, complaint):
    """One line says what is wrong."""
    assert complaint in ottla("e2e-latency", "localhost:9092", *words).err


def test_each_five_seconds_have_a_line():
    """Its numbers are those of the window; the last line has all."""
    lines = []
    stats = ProducerStats(6, 0, lines.append)
    for number, moment in enumerate((100, 2000, 5000, 6000, 7000, 11_000)):
        stats.record(10 * number, 1024 * 1024, moment)

    assert lines == [
        "3 records sent, 0.6 records/sec (0.60 MB/sec), 10.0 ms avg latency, 20.0 ms max latency.",
        "3 records sent, 0.5 records/sec (0.50 MB/sec), 40.0 ms avg latency, 50.0 ms max latency.",
    ]
    assert stats.total(12_000) == (
        "6 records sent, 0.5 records/sec (0.50 MB/sec), 25.00 ms avg latency, 50.00 ms max "
        "latency, 30 ms 50th, 50 ms 95th, 50 ms 99th, 50 ms 99.9th."
    )


def test_each_interval_of_a_consumer_has_a_line():
    """Rates leave out the time of rebalances; a rebalance counts in its own interval."""
    stats = ConsumerStats(0)
    stats.joined(500)
    stats.add([SimpleNamespace(key=b"k" * 24, value=b"v" * 1024 * 1000), *no_values(99)])
    first = stats.progress(1000, str)
    stats.add(no_values(50))

    assert first == "1000, 0, 0.9766, 0.9766, 100, 100.0000, 500, 500, 1.9532, 200.0000"
    assert stats.progress(2000, str) == (
        "2000, 0, 0.9766, 0.0000, 150, 50.0000, 0, 1000, 0.0000, 50.0000"
    )
    assert stats.total(2000, str).startswith("0, 2000, 0.9766, 0.4883, 150, 75.0000, 500, 1500,")


def no_values(count):
    return [SimpleNamespace(key=None, value=None)] * count


def test_throttle_sleeps_what_it_is_ahead():
    """After ten of a hundred a second, at 30 ms, 70 ms are left; without a rate none."""
    slept = []
    for rate in (100, -1):
        times = iter((0.0, 0.03))
        Throttle(rate, lambda times=times: next(times)).wait(10, slept.append)

    assert slept == [pytest.approx(0.07)]


def test_dates_are_written_by_javas_patterns():
    """The usual fields; another one is refused."""
    assert re.fullmatch(
        r"\d\d\.\d\d\.\d{4} 007%", date_format("dd.MM.yyyy SSS%")(1_600_000_000_007)
    )
    with pytest.raises(Exception, match=r"--date-format takes yyyy, .*, not 'EEE'"):
        date_format("EEE")


def test_payloads_are_letters_and_differ():
    """Payloads that are longer than the text that they are taken from differ as well."""
    payloads = text_payloads(5 * 1024 * 1024)

    first, second = next(payloads), next(payloads)
    assert len(first) == len(second) == 5 * 1024 * 1024
    assert first != second
    assert first[:50].isalpha()


def test_percentile_of_nothing_is_nought():
    """No record was acknowledged."""
    assert percentile([], 0.99) == 0
