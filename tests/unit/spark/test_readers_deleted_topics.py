"""Topics that are deleted, or deleted and made again, between any two questions of the source."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import ottla
from ottla.spark import connections
from ottla.spark.data_loss import DataLossError
from ottla.spark.options import SourceOptions
from ottla.spark.readers import OttlaBatchReader, OttlaStreamReader
from ottla.testing import InProcessBroker

ASKED = ("list_topics", "describe_topics", "list_offsets", "truncations", "read")


class Interrupted:
    """A client, before whose calls to a world something may happen."""

    def __init__(self, client, world):
        self.client = client
        self.world = world

    def __getattr__(self, name):
        if name in ASKED:
            self.world.asked(name)
        return getattr(self.client, name)


class World:
    """The topics a and b, and what befalls a before the question number `left`."""

    def __init__(self, broker, monkeypatch):
        self.servers = broker.bootstrap_servers
        self.broker = broker
        self.left = None
        self.event = None
        self.questions = 0
        for name in ("admin", "partition_reader"):
            make = getattr(connections, name)
            monkeypatch.setattr(
                connections, name, lambda settings, make=make: Interrupted(make(settings), self)
            )

    def asked(self, name):
        self.questions += 1
        if self.left == 0:
            self.event()
        if self.left is not None:
            self.left -= 1

    def fill(self, topic, text, numbers):
        with ottla.Producer(self.servers) as producer:
            for number in numbers:
                producer.send(topic, f"{topic}-{text}-{number}".encode())

    def delete(self):
        with ottla.Admin(self.servers) as admin:
            admin.delete_topics(["a"])

    def make_again(self):
        self.delete()
        self.broker.create_topic("a")
        self.fill("a", "new", range(20))

    def options(self, **more):
        return {"kafka.bootstrap.servers": self.servers, "subscribePattern": "^[ab]$", **more}


@pytest.fixture
def world(monkeypatch):
    with InProcessBroker() as broker:
        made = World(broker, monkeypatch)
        for topic in ("a", "b"):
            broker.create_topic(topic)
            made.fill(topic, "old", range(10))
        yield made


def values(reader, tasks):
    return [
        value.decode()
        for task in tasks
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]


class Stream:
    """A query, and the values that it has read."""

    def __init__(self, world, **more):
        given = world.options(startingOffsets="earliest", **more)
        self.reader = OttlaStreamReader(SourceOptions.for_stream(given))
        self.start = self.reader.initialOffset()
        self.read = []

    def run_twice(self):
        """As a query that is asked to end when it has found nothing new for the second time."""
        self.run()
        self.run()

    def run(self):
        """Micro-batches until there is nothing new."""
        while (end := self.reader.latestOffset(self.start, ReadAllAvailable())) != self.start:
            tasks = self.reader.partitions(self.start, end)
            self.read += values(self.reader, tasks)
            self.start = end


def names(topic, text, numbers):
    return [f"{topic}-{text}-{number}" for number in numbers]


EVENTS = {"deleted": World.delete, "made again": World.make_again}
QUESTIONS = range(13)
"""Those of a micro-batch, and of the one after it that finds nothing new."""


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("left", QUESTIONS)
def test_stream_goes_on_with_what_is_there(world, event, left):
    """All of b is read once, and of a what is there: old records, then the new ones, once each."""
    stream = Stream(world, failOnDataLoss="false")
    stream.run()
    for topic in ("a", "b"):
        world.fill(topic, "old", range(10, 15))

    world.event, world.left = lambda: EVENTS[event](world), left
    stream.run()
    world.left = None
    stream.run()

    assert [each for each in stream.read if each[0] == "b"] == names("b", "old", range(15))
    of_a = [each for each in stream.read if each[0] == "a"]
    new = names("a", "new", range(20)) if event == "made again" else []
    old = names("a", "old", range(15))
    assert of_a in (old[:10] + new, old + new)


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("left", QUESTIONS)
def test_stream_fails_for_what_is_lost_alone(world, event, left):
    """With failOnDataLoss the error names the topic, and no record of another one was read."""
    stream = Stream(world)
    stream.run()
    for topic in ("a", "b"):
        world.fill(topic, "old", range(10, 15))

    world.event, world.left = lambda: EVENTS[event](world), left
    with pytest.raises(DataLossError, match="a"):
        stream.run_twice()

    assert not [each for each in stream.read if "new" in each]


def test_questions_are_those_of_a_micro_batch(world):
    """The tests above meet each of them."""
    stream = Stream(world)
    stream.run()
    for topic in ("a", "b"):
        world.fill(topic, "old", range(10, 15))
    world.questions = 0
    stream.run()

    assert world.questions == len(QUESTIONS)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_batch_reads_nothing_of_a_topic_that_was_made_after_its_plan(world, fail):
    """The offsets were those of the topic before."""
    reader = OttlaBatchReader(SourceOptions.for_batch(world.options(failOnDataLoss=fail)))
    tasks = reader.partitions()
    world.make_again()

    if fail == "true":
        with pytest.raises(DataLossError, match="offsets 0 to 9 of a-0 are gone with it"):
            values(reader, tasks)
    else:
        assert values(reader, tasks) == names("b", "old", range(10))


def test_reader_that_knew_the_topic_before_reads_the_one_that_was_planned(world):
    """Its metadata are older than the plan."""
    reader = OttlaBatchReader(SourceOptions.for_batch(world.options()))
    assert len(values(reader, reader.partitions())) == 20
    world.make_again()

    found = values(reader, reader.partitions())

    assert found == names("a", "new", range(20)) + names("b", "old", range(10))
