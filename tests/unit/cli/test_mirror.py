"""`ottla mirror`: options, plan, rehearsal and failover, and a run until SIGINT."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import pytest
from mirrors import mirroring, properties_of

from ottla import Consumer, Producer, TopicPartition
from ottla.cli.mirror import Shown
from ottla.cli.terminal import Clients, Terminal
from ottla.clients.mirror_records import Checkpoint
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture
def two():
    """The clusters a and b."""
    with InProcessBroker() as a, InProcessBroker() as b:
        yield {"a": a, "b": b}


@pytest.fixture
def clients():
    """Real clients: there are real brokers."""
    return Clients()


@pytest.fixture
def write(tmp_path):
    """`write(properties)` makes a file of them."""

    def to_file(properties):
        path = tmp_path / "mm2.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
        return path

    return to_file


def translated(broker):
    """The offsets of all checkpoints."""
    found = [Checkpoint.of(r.key, r.value) for r in broker.records("a.checkpoints.internal")]
    return [each.downstream for each in found]


@pytest.mark.parametrize(
    ("properties", "words", "message"),
    [
        ({}, (), "clusters=: must name two clusters or more"),
        ({"clusters": "a"}, (), "clusters=a: must name two"),
        ({"clusters": "a, b"}, (), "a.bootstrap.servers: must be set"),
        ({}, ("--rehearse",), "option --rehearse is used only with --failover or"),
        ({}, ("--plan", "--failover", "x"), "only one of --plan, --failover and --failback"),
        ({}, ("--failback", "x", "--failover", "x"), "only one of --plan, --failover"),
    ],
)
def test_mistakes_are_named(ottla, write, properties, words, message):
    """In the file and on the command line."""
    outcome = ottla("mirror", write(properties), *words)

    assert (outcome.status, message in outcome.err) == (1, True), outcome.err


def test_plan_says_what_would_be_done_and_does_nothing(ottla, write, two):
    """Topics, settings and groups; nothing is written to either cluster."""
    two["a"].create_topic("pages", partitions=3, retention_ms=1000)
    two["a"].create_topic("secret")
    file = write(properties_of(two, topics_exclude="secret", sync_group_offsets_enabled="true"))

    outcome = ottla("mirror", file, "--plan")

    assert outcome.lines == [
        "a->b: 1 topics, 0 groups",
        "  copy pages to a.pages",
        "  create topic a.pages with 3 partitions",
    ]
    assert two["b"].topics() == []


def test_plan_names_topics_that_are_left_out_for_their_names(ottla, write, two):
    """Names that begin with the alias of an end say that they came by this way, as Kafka has it."""
    for topic in ("a.own", "b.own", "c.own", "a.internal.checkpoints.internal", "a.secret"):
        two["a"].create_topic(topic)

    outcome = ottla("mirror", write(properties_of(two, topics_exclude=".*secret")), "--plan")

    assert [line for line in outcome.lines if "leave out" in line] == [
        "  leave out a.own: its name says that it came by this way",
        "  leave out b.own: its name says that it came by this way",
    ]


def test_failover_is_rehearsed_and_done(ottla, write, two):
    """Where each group continues, from the target alone: the source is dead."""
    file = write(properties_of(two))
    with Producer(two["a"].bootstrap_servers) as producer:
        for number in range(20):
            producer.send("pages", str(number))
    with Consumer(two["a"].bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([TopicPartition("pages", 0)])
        reader.commit({TopicPartition("pages", 0): 20})
    with mirroring(two):
        two["b"].wait_for_records("a.pages", 20)
        wait_until(lambda: 20 in translated(two["b"]), "the checkpoint of all records")
    two["a"].kill()

    rehearsed = ottla("mirror", file, "--failover", "a->b", "--rehearse")
    assert rehearsed.lines[1].split()[:5] == ["g", "a.pages", "0", "20", "20"], rehearsed.err
    assert "not committed" in rehearsed.out
    assert not two["b"].committed("g")

    done = ottla("mirror", file, "--failover", "a->b")
    assert "1 offsets of 1 groups committed" in done.err
    assert two["b"].committed("g") == {TopicPartition("a.pages", 0): 20}
    assert "ready" in ottla("mirror", file, "--failover", "a->b", "--rehearse").out


def test_failback_is_rehearsed_and_done(ottla, write, two):
    """The group goes back, and what the copy did not get is said."""
    file = write(properties_of(two))
    with Producer(two["a"].bootstrap_servers) as producer:
        for number in range(20):
            producer.send("pages", str(number))
        producer.flush()
        with mirroring(two):
            two["b"].wait_for_records("a.pages", 20)
        producer.send("pages", "alone")
    with Consumer(two["b"].bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([TopicPartition("a.pages", 0)])
        reader.commit({TopicPartition("a.pages", 0): 20})

    rehearsed = ottla("mirror", file, "--failback", "a->b", "--rehearse")
    assert rehearsed.lines[1].split()[:6] == ["g", "pages", "0", "20", "20", "1"], rehearsed.err
    assert "only at a: pages-0 offsets 20-20 (1), which a->b has not copied" in rehearsed.err
    assert not two["a"].committed("g")

    done = ottla("mirror", file, "--failback", "a->b")
    assert "1 offsets of 1 groups committed" in done.err
    assert two["a"].committed("g") == {TopicPartition("pages", 0): 20}


def test_unknown_flow_and_cluster_are_named(ottla, write, two):
    """The error lists the flows and clusters that there are."""
    file = write(properties_of(two))

    assert "c->b: there is no such flow; there are a->b, b->a" in (
        ottla("mirror", file, "--failover", "c->b").err
    )
    assert "clusters=a, b: has no c" in ottla("mirror", file, "--clusters", "c").err


def test_mirror_runs_until_it_is_interrupted(ottla, write, two):
    """A line says where it stands, another where metrics are; SIGINT ends it in order."""
    settings = {"emit_heartbeats_enabled": "false", "metrics_listener": "http://127.0.0.1:0"}
    file = write(properties_of(two, **settings))
    with Producer(two["a"].bootstrap_servers) as producer:
        for number in range(20):
            producer.send("pages", str(number))
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "mirror", str(file), "--status-interval", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, PYTHONWARNINGS="ignore"),
    )
    try:
        url = process.stderr.readline().removeprefix("metrics: ").strip()
        two["b"].wait_for_records("a.pages", 20)
        words = ("metrics", "MirrorSource", "--url", url, "--attributes", "record-count")
        wait_until(lambda: "record-count=20" in ottla(*words).out, "the records in the metrics")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 0
    assert "a->b  " in out.splitlines()[-1]
    assert " records  lag 0  topics " in out.splitlines()[-1]


@pytest.mark.wide
def test_demo_mirrors_between_two_clusters(ottla):
    """One command: a hundred thousand records, a lag of 0, and a group that can move."""
    assert ottla("mirror", "--demo").lines == [
        "lisbon: 100,000 records in pages, read by the group report",
        "lisbon->porto  100,000 records  lag 0  topics 1  groups 1",
        "porto: the group report continues at offset 100,000 of lisbon.pages",
        "lost: 0, to read again: 0",
    ]


def test_file_or_demo_must_be_given(ottla):
    """One of the two is needed, and not both."""
    assert "either a properties file or --demo must be given" in ottla("mirror").err


class TwoFlows:
    """What two flows have told by now, flow by flow."""

    def __init__(self) -> None:
        self.told = {"a->b": [], "b->a": []}

    def notices(self):
        return [(name, text) for name, texts in self.told.items() for text in texts]

    def gaps(self):
        return []


def test_news_of_the_first_flow_are_not_mistaken_for_those_of_the_second():
    """Each line is told once, whichever flow it is of, and again if it comes again."""
    mirror, terminal = TwoFlows(), Terminal(err=io.StringIO())
    shown = Shown(mirror, terminal)
    for name, text in (("b->a", "one"), ("a->b", "two"), ("b->a", "one"), ("a->b", "three")):
        mirror.told[name].append(text)
        shown.news()

    assert terminal.err.getvalue().splitlines() == [
        "b->a: one",
        "a->b: two",
        "b->a: one",
        "a->b: three",
    ]
