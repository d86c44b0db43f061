"""Fetches of readers of message sets: limits, markers, and what goes wrong."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.record.conversion import build_message_set
from ottla.record.memory_records import batches
from ottla.record.record import Record
from ottla.replication.replica_requests import FetchParams, FetchPartitionResult, PartitionFetch
from ottla.runtime import FileRegion
from ottla.server.message_set_fetch import MAX_CONVERTED_BYTES, MAX_READ_BYTES, MessageSetFetch
from ottla.structs import NO_UUID, IsolationLevel, TopicPartition, replace
from ottla.testing import MemoryDisk, mock_runtime

TP = TopicPartition("t", 0)
PARAMS = FetchParams(-1, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)


def batch(offset: int, **header) -> bytes:
    key = struct.pack(">hh", 0, 1) if header else b"k"
    return build_batch([(1000, key, b"value", ())], base_offset=offset, **header)


def marker(offset: int) -> bytes:
    return batch(offset, is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)


class Logs:
    """Stands for the replica manager: each read gives the batch at its offset, and no more."""

    def __init__(self, *stored: bytes) -> None:
        self.runtime = mock_runtime()
        self.configs: dict = {}
        self.stored = stored
        self.asked: list[PartitionFetch] = []
        self.reads = SimpleNamespace(read=self.read_all)

    def log_config(self, topic_partition) -> SimpleNamespace | None:
        return self.configs.get(topic_partition)

    def fetch_records(self, params, partitions, respond) -> None:
        respond(self.read_all(params, partitions))

    def read_all(self, params, partitions) -> dict:
        self.asked += partitions
        return {request.topic_partition: self.read(request) for request in partitions}

    def read(self, request: PartitionFetch) -> FetchPartitionResult:
        if request.fetch_offset >= len(self.stored):
            return FetchPartitionResult(ErrorCode.NONE, high_watermark=len(self.stored))
        data = self.stored[request.fetch_offset]
        file = MemoryDisk().open("/segment", create=True)
        file.pwrite(data, 0)
        return FetchPartitionResult(ErrorCode.NONE, records=FileRegion(file, 0, len(data)))


def fetch(logs: Logs, version: int = 2, **changes: int):
    """What one fetch from offset 0 answers: the result, and the message set or region."""
    answers: list = []
    request = replace(PartitionFetch(TP, NO_UUID, 0, 1 << 20), **changes)
    MessageSetFetch(
        logs, PARAMS, [request], version, lambda *answer: answers.append(answer), answers.append
    ).start()
    logs.runtime.scheduler.run_ready()
    ((results, message_sets),) = answers
    return results[TP], message_sets.get(TP)


def contents(records) -> bytes:
    return records.read() if isinstance(records, FileRegion) else bytes(records)


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_batches_are_converted_to_the_newest_known_format(version, magic):
    """Magic 0 for v0-1, magic 1 for v2-3."""
    result, data = fetch(Logs(batch(0)), version)

    assert result.error is ErrorCode.NONE
    assert [one.magic for one in batches(data)] == [magic]


def test_old_messages_are_sent_from_the_file():
    """Nothing of them is touched."""
    stored = build_message_set([Record(0, 1000, b"k", b"v", ())], 1)
    _, region = fetch(Logs(stored), 3)

    assert isinstance(region, FileRegion)
    assert region.read() == stored


@pytest.mark.parametrize("limit", [0, 10])
def test_readers_before_v3_get_no_more_than_their_limit(limit):
    """Converted or not: a message that is cut tells them to ask for more."""
    stored = build_message_set([Record(0, 1000, b"k", b"v", ())], 1)

    for logs in (Logs(batch(0)), Logs(stored)):
        assert len(contents(fetch(logs, 2, max_bytes=limit)[1])) == limit
        whole = contents(fetch(logs, 3, max_bytes=limit)[1])
        assert [one.last_offset for one in batches(whole)] == [0]


def test_markers_are_read_past():
    """Where a fetch finds nothing else, its reader would ask for them for ever."""
    logs = Logs(marker(0), marker(1), batch(2))
    _, data = fetch(logs)

    assert [one.base_offset for one in batches(data)] == [2]
    assert [request.fetch_offset for request in logs.asked] == [0, 1, 2]


def test_markers_at_the_end_of_the_log_give_an_empty_answer():
    """Until something follows them."""
    result, data = fetch(Logs(marker(0)))

    assert (result.error, result.high_watermark, data) == (ErrorCode.NONE, 1, None)


def test_damage_is_an_error_of_its_partition():
    """It is not converted into something that looks right."""
    result, data = fetch(Logs(batch(0)[:-1] + b"!"))

    assert (result.error, data) == (ErrorCode.CORRUPT_MESSAGE, None)


def test_disk_that_fails_is_an_error_of_its_partition(monkeypatch):
    """The others are answered."""

    def fail(_: FileRegion) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileRegion, "read", fail)
    result, data = fetch(Logs(batch(0)))

    assert (result.error, data) == (ErrorCode.KAFKA_STORAGE_ERROR, None)


def test_conversion_that_fails_is_told(monkeypatch):
    """To whoever has to end the request."""
    error = RuntimeError("a bug")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ottla.server.message_set_fetch.down_convert", fail)
    failed: list[BaseException] = []
    logs = Logs(batch(0))
    request = PartitionFetch(TP, NO_UUID, 0, 100)
    MessageSetFetch(logs, PARAMS, [request], 2, lambda *_: None, failed.append).start()
    logs.runtime.scheduler.run_ready()

    assert failed == [error]


@pytest.mark.parametrize(("largest", "read"), [(100, MAX_READ_BYTES), (5 << 20, 5 << 20)])
def test_no_more_is_read_than_can_be_converted_soon(largest, read):
    """A read is bounded, but has room for a batch of the largest size that the topic allows."""
    logs = Logs(batch(0))
    config = SimpleNamespace(max_message_bytes=largest)
    logs.configs[TP] = config
    fetch(logs, max_bytes=1 << 30)

    assert logs.asked[0].max_bytes == read


def test_partition_is_read_once_while_another_is_read_past_its_markers(monkeypatch):
    """Its file may be gone by then."""
    reads, read = [], FileRegion.read

    def count(region):
        reads.append(region.size)
        return read(region)

    monkeypatch.setattr(FileRegion, "read", count)
    other = TopicPartition("t", 1)
    logs = Logs(marker(0), batch(1))
    stored = {TP: logs.stored, other: (build_batch([(1, b"a" * 300, b"", ())]),)}

    def read_one(request):
        logs.stored = stored[request.topic_partition]
        return Logs.read(logs, request)

    logs.read = read_one
    requests = [PartitionFetch(each, NO_UUID, 0, 1 << 20) for each in (TP, other)]
    _, message_sets = fetch_all(logs, requests)

    assert message_sets.keys() == {TP, other}
    assert len([size for size in reads if size > 300]) == 1


def test_batch_that_ends_before_the_wanted_offset_gives_an_empty_answer():
    """Nothing would come of reading the same again."""
    logs = Logs(marker(0), batch(0))

    assert fetch(logs, fetch_offset=1)[1] is None
    assert len(logs.asked) == 1


def fetch_all(logs: Logs, requests: list[PartitionFetch]):
    """The results of one fetch, and the message sets."""
    answers: list = []
    MessageSetFetch(
        logs, PARAMS, requests, 2, lambda *answer: answers.append(answer), answers.append
    ).start()
    logs.runtime.scheduler.run_ready()
    (answer,) = answers
    return answer


def test_converted_answer_is_bounded_and_leaves_out_another_partition_each_time():
    """Of many partitions with much to convert each has its turn."""
    stored = build_batch([(1, b"k", bytes(MAX_READ_BYTES), ())])
    logs = Logs(stored)
    partitions = [TopicPartition("t", index) for index in range(12)]
    answered: set[TopicPartition] = set()
    for _ in range(40):
        requests = [PartitionFetch(each, NO_UUID, 0, 2 * MAX_READ_BYTES) for each in partitions]
        results, message_sets = fetch_all(logs, requests)
        sizes = {tp: len(data) for tp, data in message_sets.items()}
        assert all(result.error is ErrorCode.NONE for result in results.values())
        assert sizes.keys() == set(partitions)
        assert 0 < sum(sizes.values()) <= MAX_CONVERTED_BYTES + 2 * MAX_READ_BYTES
        answered |= {tp for tp, size in sizes.items() if size}

    assert answered == set(partitions)
