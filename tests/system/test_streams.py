"""Applications of the stream API from topic to topic, over restarts and a reset."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.streams import Serdes, Streams
from ottla.testing import wait_until

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "use" / "streams.md"
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def send(servers, topic, *records):
    """Put keys and values into a topic."""
    with ottla.Producer(servers) as producer:
        for key, value in records:
            producer.send(topic, value, key=key).result()


def committed(servers, topic):
    """Keys and values that count, in order."""
    where = ottla.TopicPartition(topic, 0)
    with ottla.Admin(servers) as admin:
        end = admin.list_offsets({where: -1})[where].offset
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with ottla.Consumer(servers, enable_auto_commit=False, **settings) as consumer:
        consumer.assign([where])
        found = []
        while consumer.position(where) < end:
            found += [(record.key, record.value) for record in consumer.poll(1)]
    return found


def counts(found):
    """Words and numbers."""
    return [(key.decode(), int.from_bytes(value, "big")) for key, value in found]


def test_the_word_count_of_the_page_goes_on_after_a_restart(
    spark, start_broker, tmp_path, monkeypatch
):
    """Each run writes the counts of the words that came, each once, also if one died too early.

    The second run finds that the first had written its batch, and not told Spark so.
    """
    monkeypatch.chdir(tmp_path)
    servers = start_broker().bootstrap_servers
    example = EXAMPLE.search(PAGE.read_text(encoding="utf-8"))[1]
    program = example.replace("localhost:9092", servers).replace("app.run()", "app.run_once()")
    assert len([line for line in program.splitlines() if line]) == 5
    runs = []
    for lines in (("All streams lead", "all"), (), ("lead the STREAMS",)):
        send(servers, "text", *((None, line.encode()) for line in lines))
        exec(compile(program, str(PAGE), "exec"), {})
        seen = sum(map(len, runs))
        runs.append(sorted(counts(committed(servers, "word-counts")[seen:])))
        if len(runs) == 1:
            Path("streams-state/word-count/word-counts/commits/0").unlink()

    assert runs == [
        [("all", 2), ("lead", 1), ("streams", 1)],
        [],
        [("lead", 2), ("streams", 2), ("the", 1)],
    ]


def test_an_application_goes_on_behind_records_that_are_gone(spark, broker, unique, tmp_path):
    """As its error says that it can, and with the state that it has."""
    servers, name = broker.bootstrap_servers, unique("app")
    texts, numbers = f"{name}.texts", f"{name}.numbers"

    def run(**settings):
        app = Streams(name, servers, state_dir=tmp_path, **settings)
        app.stream(texts).group_by_key().count().to(numbers)
        app.run_once()

    send(servers, texts, (b"a", b"1"))
    run()
    send(servers, texts, (b"a", b"gone"))
    with ottla.Admin(servers) as admin:
        admin.delete_records({ottla.TopicPartition(texts, 0): 2})
    send(servers, texts, (b"a", b"2"))
    with pytest.raises(StreamingQueryException, match="set the option failOnDataLoss to false"):
        run()
    run(fail_on_data_loss=False)

    assert counts(committed(servers, numbers)) == [("a", 1), ("a", 2)]


def test_a_folder_has_one_instance_at_a_time(spark, broker, unique, tmp_path):
    """Until it is stopped, or its queries have ended: then another one goes on with its state."""
    servers, name = broker.bootstrap_servers, unique("app")
    texts, numbers = f"{name}.texts", f"{name}.numbers"

    def counting():
        app = Streams(name, servers, state_dir=tmp_path)
        app.stream(texts).group_by_key().count().to(numbers)
        return app

    send(servers, texts, (b"a", b"1"))
    first, second, third = (counting() for _ in range(3))
    first.start()
    for start in (second.start, second.run_once):
        with pytest.raises(ValueError, match="another one needs a state_dir of its own"):
            start()
    wait_until(lambda: committed(servers, numbers), "the first count")
    first.stop()
    second.start()
    for query in second.queries:
        query.stop()
    send(servers, texts, (b"a", b"2"))
    third.run_once()

    assert counts(committed(servers, numbers)) == [("a", 1), ("a", 2)]


@pytest.mark.wide
def test_a_reset_application_begins_anew(spark, broker, unique, tmp_path):
    """Its own topics, groups and state are gone; input and output stay."""
    servers, name = broker.bootstrap_servers, unique("app")
    texts, lengths, totals = (f"{name}.{part}" for part in ("texts", "lengths", "totals"))

    def run():
        app = Streams(name, servers, state_dir=tmp_path)
        names = app.table(f"{name}.names")
        long = app.stream(texts).map_values("CAST(length(value) AS long)")
        again = long.through(lengths).repartition("again")
        again.group_by_key().reduce(lambda total, more: total + more).to(totals)
        app.stream(texts).join(names, lambda text, who: f"{who}: {text}").to(f"{name}.named")
        app.run_once()

    def reset(*words):
        out = io.StringIO()
        options = ["--bootstrap-server", servers, "--state-dir", str(tmp_path)]
        command = ["streams", "reset", "--application-id", name, *options, *words]
        assert main(command, Terminal(out=out)) == 0
        return out.getvalue().splitlines()

    send(servers, texts, (b"a", b"xy"), (b"a", b"z"))
    send(servers, f"{name}.names", (b"a", b"old"), (b"a", b"Ana"))
    run()
    said = reset("--intermediate-topics", lengths)
    run()

    own = f"{name}-again-repartition"
    assert said[:2] == [f"deleted the topic {own}", f"deleted the records of {lengths}"]
    assert len([line for line in said if line.startswith(f"deleted the group {name}-")]) == 4
    assert said[-1] == f"deleted {tmp_path / name}"
    assert own in reset("--dry-run")[0]
    three = Serdes.long().to_bytes(3)
    assert committed(servers, totals) == [(b"a", three)] * 2
    assert committed(servers, f"{name}.named") == [(b"a", b"Ana: xy"), (b"a", b"Ana: z")] * 2
    assert reset()[-1] == f"deleted {tmp_path / name}"
    assert reset() == ["there is nothing to delete"]
