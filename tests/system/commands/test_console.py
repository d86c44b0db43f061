"""The console producer and the console consumer."""

import os
import pty
import re
import signal

import pytest

from ottla import Producer

LIMIT_S = 120
PATIENCE_MS = (1500, 6000, 24_000)
"""How long nothing may come; the longer ones are for machines that have much else to do."""


def test_quickstart_of_messages(run_process, broker, unique):
    """Lines in, lines out, on a topic that the first message creates."""
    name = unique("test")
    servers = broker.bootstrap_servers
    text = "This is a message\nThis is another message\n"

    sent = run_process("console-producer", "--broker-list", servers, "--topic", name, stdin=text)
    words = ("--bootstrap-server", servers, "--topic", name, "--from-beginning")
    read = run_process("console-consumer", *words, "--max-messages", 2)

    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
    assert (read.returncode, read.stdout) == (0, text)
    assert read.stderr == "Processed a total of 2 messages\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_everything_about_a_record_comes_back(ottla, topic, codec):
    """Headers, keys and values go in and come out by the properties of the two tools."""
    parse = ("--property", "parse.key=true", "--property", "parse.headers=true")
    produce = ("--topic", topic, "--compression-codec", codec, *parse)
    ottla("console-producer", *produce, stdin="h1:a,h2:b\tkey\tvälue\n")
    shown = [f"print.{part}=true" for part in ("timestamp", "offset", "headers", "key")]
    words = [word for part in shown for word in ("--property", part)]

    read = ottla(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 1, *words
    )

    assert re.fullmatch(r"CreateTime:\d{13}\tOffset:0\th1:a,h2:b\tkey\tvälue\n", read.stdout)


def test_one_partition_is_read_from_an_offset(ottla, narrow):
    """Outside any group; --timeout-ms ends it where the log does."""
    ottla("console-producer", "--topic", narrow, stdin="".join(f"{n}\n" for n in range(10)))
    words = ("--topic", narrow, "--partition", 0)

    for limit_ms in PATIENCE_MS:
        four = ottla("console-consumer", *words, "--offset", 6, "--timeout-ms", limit_ms)
        if four.stdout:  # else it took longer than that until the first one came
            break
    two = ottla("console-consumer", *words, "--offset", "earliest", "--max-messages", 2)

    assert four.stdout == "6\n7\n8\n9\n"
    assert four.stderr == "Processed a total of 4 messages\n"
    assert two.stdout == "0\n1\n"


def test_partition_that_is_not_there_is_one_line(ottla, run, broker, narrow):
    """Its records would never come."""
    words = ("--bootstrap-server", broker.bootstrap_servers, "--topic", narrow, "--partition", 7)

    done = run("console-consumer", *words)

    assert done.returncode == 1
    assert f"topic '{narrow}' has no partition 7" in done.stderr


def test_topics_can_be_chosen_by_a_pattern(ottla, topic):
    """--whitelist, as older scripts spell --include."""
    ottla("console-producer", "--topic", topic, stdin="here\n")

    words = ("--whitelist", f"{topic}|none", "--from-beginning", "--max-messages", 1)

    assert ottla("console-consumer", *words).stdout == "here\n"


def test_bulk_lines_arrive_in_order(ottla, narrow):
    """A file of a hundred thousand lines through one partition."""
    text = "".join(f"line {number}\n" for number in range(100_000))

    ottla("console-producer", "--topic", narrow, stdin=text)
    words = ("--topic", narrow, "--from-beginning", "--max-messages", 100_000)

    assert ottla("console-consumer", *words).stdout == text


def test_records_that_the_broker_refuses_are_counted(ottla, run, broker, unique):
    """A compacted topic takes no record without a key."""
    name = unique("compacted")
    ottla("topics", "--create", "--topic", name, "--config", "cleanup.policy=compact")
    words = ("--bootstrap-server", broker.bootstrap_servers, "--topic", name)

    done = run("console-producer", *words, stdin="a\nb\n")

    assert done.returncode == 1
    assert "INVALID_RECORD" in done.stderr
    assert done.stderr.splitlines()[-1] == f"2 records for topic {name} were not sent"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_consumer_ends_cleanly_on_a_signal(start, ottla, broker, narrow, stop):
    """Ctrl-C and SIGTERM: the count, no traceback, and the group is left at once."""
    group = f"{narrow}-group"
    ottla("console-producer", "--topic", narrow, stdin="a\n")
    words = ("--topic", narrow, "--from-beginning", "--group", group)
    process = start("console-consumer", "--bootstrap-server", broker.bootstrap_servers, *words)

    first = process.stdout.readline()
    process.send_signal(stop)
    _, err = process.communicate(timeout=LIMIT_S)

    assert first == "a\n"
    assert (process.returncode, err) == (0, "Processed a total of 1 messages\n")
    state = ottla("consumer-groups", "--describe", "--group", group, "--state").stdout
    assert state.split()[-2:] == ["Empty", "0"]


def test_reader_that_goes_away_is_no_error(start, ottla, broker, topic):
    """`| head -1` ends the consumer without a traceback."""
    text = "".join(f"{number}\n" for number in range(50_000))
    ottla("console-producer", "--topic", topic, stdin=text)
    words = ("--topic", topic, "--from-beginning")
    process = start("console-consumer", "--bootstrap-server", broker.bootstrap_servers, *words)

    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()

    assert process.wait(LIMIT_S) == 128 + signal.SIGPIPE
    assert re.fullmatch(r"Processed a total of \d+ messages\n", err)


def test_consumer_that_waits_ends_when_its_reader_has_gone(start, ottla, broker, narrow):
    """`| head -1` of a topic with one record: there is no next write to fail."""
    ottla("console-producer", "--topic", narrow, stdin="hi\n")
    words = ("--topic", narrow, "--from-beginning")
    process = start("console-consumer", "--bootstrap-server", broker.bootstrap_servers, *words)

    first = process.stdout.readline()
    process.stdout.close()

    assert (first, process.wait(LIMIT_S)) == ("hi\n", 128 + signal.SIGPIPE)


def test_misspelled_topic_is_not_created_by_reading(ottla, fails, run, broker, narrow):
    """The topic that was meant is named, and there is no new one."""
    wrong = f"{narrow}x"
    words = ("--bootstrap-server", broker.bootstrap_servers, "--topic", wrong)

    done = run("console-consumer", *words, "--from-beginning", "--max-messages", 1)

    assert done.returncode == 1
    assert f"topic '{wrong}' does not exist; did you mean {narrow}" in done.stderr
    assert wrong not in ottla("topics", "--list").stdout.splitlines()
    assert ottla("consumer-groups", "--list").stdout.count("console-consumer-") == 0


def test_tail_passes_over_the_markers_at_the_end_of_a_log(ottla, broker, narrow):
    """The last offset is the marker of a transaction, in front of which the records are."""
    settings = {"transactional_id": f"{narrow}-tail"}
    with Producer(broker.bootstrap_servers, **settings) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(4):
            producer.send(narrow, str(number))
        producer.commit_transaction()

    lines = ottla("tail", narrow, "-n", 2).stdout.splitlines()

    assert [line.split()[-2:] for line in lines] == [["0:2", "2"], ["0:3", "3"]]


def test_prompt_is_shown_to_people_only(start, broker, topic):
    """On a terminal each line is asked for with >."""
    ours, theirs = pty.openpty()
    servers = broker.bootstrap_servers
    process = start(
        "console-producer", "--bootstrap-server", servers, "--topic", topic, stdin=theirs
    )
    os.close(theirs)

    asked = process.stdout.read(1)
    os.write(ours, b"typed\n\x04")
    rest = process.stdout.read()
    os.close(ours)

    assert (asked, rest) == (">", ">\n")
    assert process.wait(LIMIT_S) == 0
