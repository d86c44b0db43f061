"""DescribeLogDirs: what lies where, what is on its way, and what has failed."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace

import pytest
from apis_world import Context

from ottla.errors import ErrorCode
from ottla.log.log_manager import FutureReplica, LogAttachment
from ottla.protocol.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.runtime import Slices
from ottla.server.handlers.log_dirs import LOGS_IN_A_SLICE, LogDirsHandler
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime


class Directory:
    """A log directory on a volume of 100 bytes; a disk that fails takes it offline."""

    def __init__(self, path, *, is_offline=False, fails=False):
        self.path, self.is_offline, self.fails = path, is_offline, fails
        self.disk = self
        self.refusals = []

    def usage(self, path):
        assert path == self.path
        if self.fails:
            raise OSError(5, "Input/output error")
        return 100, 60

    def refused(self, error, doing):
        self.refusals.append(doing)
        self.is_offline = True


class Moves:
    """Moves of replicas that are under way."""

    def __init__(self):
        self.under_way = {}

    def replicas_into(self, log_dir):
        return self.under_way.get(log_dir.path, ())


def log(log_dir, topic, index, size=10, end=5, high_watermark=5):
    return SimpleNamespace(
        log_dir=log_dir,
        topic_partition=TopicPartition(topic, index),
        size_in_bytes=size,
        log_end_offset=end,
        high_watermark=high_watermark,
    )


class World:
    """Two directories: /a has t-1, t-0 and u-0, and /b gets t-0, of which it has two records."""

    def __init__(self):
        self.a, self.b = self.dirs = [Directory("/a"), Directory("/b")]
        self.logs = [
            log(self.a, "t", 1, size=11),
            log(self.a, "u", 0, size=12, end=3, high_watermark=7),
            log(self.a, "t", 0, size=13),
        ]
        moves = Moves()
        moves.under_way = {"/b": [FutureReplica(TopicPartition("t", 0), 4, 3)]}
        self.attached = [LogAttachment(), moves]
        self.handler = LogDirsHandler(self, Slices())

    def all_logs(self):
        return self.logs

    def describe(self, topics=None):
        """By directory: the topics, and of each partition (index, size, lag, is it to come)."""
        body = DescribeLogDirsRequest(topics=topics)
        return {
            result.log_dir: [
                (
                    topic.name,
                    [
                        (p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
                        for p in topic.partitions
                    ],
                )
                for topic in result.topics
            ]
            for result in self.handler.handle_describe_log_dirs(Context(), body).results
        }


@pytest.fixture
def world() -> World:
    return World()


def test_replicas_are_described_where_they_are_and_where_they_will_be(world):
    """Topics and partitions come in order, and what is still to come has a lag."""
    assert world.describe() == {
        "/a": [
            ("t", [(0, 13, 0, False), (1, 11, 0, False)]),
            ("u", [(0, 12, 4, False)]),
        ],
        "/b": [("t", [(0, 4, 3, True)])],
    }


def test_only_what_is_asked_for_is_described(world):
    """A list of topics without any gives the directories alone."""
    wanted = [DescribableLogDirTopic(topic="t", partitions=[0])]
    assert world.describe(wanted) == {
        "/a": [("t", [(0, 13, 0, False)])],
        "/b": [("t", [(0, 4, 3, True)])],
    }
    assert world.describe([]) == {"/a": [], "/b": []}
    wanted = [DescribableLogDirTopic(topic="u", partitions=[0, 1])]
    assert world.describe(wanted) == {"/a": [("u", [(0, 12, 4, False)])], "/b": []}


def test_size_of_the_volume_is_that_of_the_disk(world):
    """All bytes, and those that are free."""
    results = world.handler.handle_describe_log_dirs(Context(), DescribeLogDirsRequest(topics=[]))

    assert [(r.error_code, r.total_bytes, r.usable_bytes) for r in results.results] == [
        (0, 100, 60)
    ] * 2


@pytest.mark.parametrize("is_known", [True, False])
def test_directory_that_has_failed_is_named_without_partitions(world, is_known):
    """A failure that is found only now takes it offline; the other one is described."""
    world.a.is_offline, world.a.fails = is_known, True
    results = world.handler.handle_describe_log_dirs(Context(), DescribeLogDirsRequest(topics=None))

    assert [(r.log_dir, r.error_code, len(r.topics)) for r in results.results] == [
        ("/a", ErrorCode.KAFKA_STORAGE_ERROR, 0),
        ("/b", 0, 1),
    ]
    assert (world.a.is_offline, len(world.a.refusals)) == (True, int(not is_known))


def test_very_many_logs_are_described_in_slices(world):
    """Each sums up its segments: others are served meanwhile."""
    world.logs = [log(world.a, f"t{number % 50}", number) for number in range(LOGS_IN_A_SLICE + 1)]
    answer = world.handler.handle_describe_log_dirs(Context(), DescribeLogDirsRequest())
    assert isinstance(answer, Coroutine)
    first, _ = mock_runtime().scheduler.run(answer).results

    assert sum(len(topic.partitions) for topic in first.topics) == LOGS_IN_A_SLICE + 1
