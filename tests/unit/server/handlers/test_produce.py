"""What Produce takes and what it refuses, through the handler into the log."""

from __future__ import annotations

import gc
import struct
from types import SimpleNamespace
from uuid import UUID

import pytest
from crc32c import crc32c
from handmade import sealed
from hostile_batches import INT32, INT64, ONE, hostile_batches, hostile_varints
from message_sets import message, wrapper
from produce_world import BROKER, NOW_MS, PARTITION, ProduceWorld

from ottla.errors import ErrorCode, KafkaError
from ottla.log import log_validator
from ottla.log.log_validator import LargeBatchError
from ottla.protocol.produce import FIRST_VERSION_WITH_IDS
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record import encode_varint
from ottla.replication.delayed_produce import DelayedProduce
from ottla.structs import StopReplicaPartition

REFUSALS = (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
SMALL = build_batch([(NOW_MS, b"k", b"v", ())])
LARGE = {"max_message_bytes": 200_000_000, "segment_bytes": 1_000_000_000}


@pytest.fixture(scope="module")
def world():
    return ProduceWorld()


@pytest.fixture
def large_world():
    return ProduceWorld(**LARGE)


def rows(count, value=b"v" * 100):
    return [(NOW_MS, b"k", value, ())] * count


def large_batch(codec=CompressionType.NONE):
    """Two megabytes."""
    return build_batch(rows(20_000), codec)


def test_batch_that_says_two_billion_records_moves_no_offset(world):
    """One record under a header of 2,147,483,647 of them, with a right CRC, is refused."""
    assert world.error(sealed(ONE, INT32)) is ErrorCode.INVALID_RECORD
    assert world.end_offset == 0


def test_there_are_enough_hostile_batches():
    """The tables below are as long as they are meant to be."""
    assert len(hostile_batches()) >= 96
    assert len(hostile_varints()) >= 41


@pytest.mark.parametrize("name", hostile_batches())
def test_hostile_batch_moves_no_offset(world, name):
    """Each lie about a batch is refused, and the log's end stays where it is."""
    assert world.error(hostile_batches()[name]) in REFUSALS
    assert world.end_offset == 0


@pytest.mark.parametrize("name", hostile_varints())
def test_broken_varint_moves_no_offset(world, name):
    """A record with one varint that cannot be is refused."""
    assert world.error(hostile_varints()[name]) in REFUSALS
    assert world.end_offset == 0


INNER = message(0, b"k", b"v") + message(1, b"k", b"w")
HOSTILE_SETS = {
    "a message cut short": message(0, b"k", b"v")[:-1],
    "a message of twelve bytes": message(0, b"k", b"v")[:12],
    "a byte behind the last": INNER + b"\0",
    "a wrong CRC": INNER[:-1] + b"\xff",
    "a wrong CRC inside": wrapper(1, INNER[:-1] + b"\xff"),
    "a message cut short inside": wrapper(1, INNER[:-3]),
    "nothing inside": wrapper(0, b""),
    "another magic inside": wrapper(0, message(0, b"k", b"v", magic=0)),
    "a compressed set inside": wrapper(0, wrapper(0, INNER)),
    "a codec around nothing": message(0, None, None, attributes=1),
    "a codec around noise": message(0, None, b"noise", attributes=1),
    "a codec of magic 2 only": message(0, None, b"noise", attributes=4),
    "timestamps too far apart": message(0, b"k", b"v", timestamp=INT64)
    + message(1, b"k", b"v", timestamp=-2),
    "a batch behind a message": INNER + build_batch(rows(1)),
}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", HOSTILE_SETS)
def test_hostile_message_set_moves_no_offset(world, name, version):
    """What old producers send is looked through as well, message by message."""
    assert world.error(HOSTILE_SETS[name], version) in REFUSALS
    assert world.end_offset == 0


def test_message_set_in_a_request_of_today_is_refused(world):
    """From v3 on there are batches of magic 2 only; the size of the first one is not looked at."""
    whole = message(0, b"k", b"v" * 100)

    assert world.error(whole, 3) is ErrorCode.INVALID_RECORD
    assert world.end_offset == 0


def test_message_sets_and_batches_of_old_requests_are_taken():
    """Both are stored as batches with offsets from the end of the log on."""
    world = ProduceWorld()
    for data in (INNER, wrapper(1, INNER), build_batch(rows(2))):
        assert world.error(data, 2) is ErrorCode.NONE
    assert world.error(b"", 2) is ErrorCode.NONE

    assert [record.offset for record in world.stored()] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("told", [-1, 0, NOW_MS - 1, NOW_MS + 7, 2**63 - 1])
def test_largest_timestamp_of_a_header_is_mended(told):
    """Some clients write none: the header gets that of the records, and its new CRC."""
    world = ProduceWorld()
    record = bytes.fromhex("0c 00 0a 00 01 01 00")  # five milliseconds behind the base

    assert world.error(sealed(record, 1, base_timestamp=NOW_MS, max_timestamp=told)) == 0
    assert [each.timestamp_ms for each in world.stored()] == [NOW_MS + 5]
    log = world.manager.partition(("t", 0)).log
    assert log.segments.active.max_timestamp_ms == NOW_MS + 5


def test_padded_varints_and_unknown_attributes_of_a_batch_are_taken():
    """Java reads them as well: they say nothing that is not true."""
    world = ProduceWorld()
    body = b"\x00\x80\x00\x80\x80\x00" + encode_varint(-1) + encode_varint(-1) + b"\x80\x00"

    assert world.error(sealed(encode_varint(len(body)) + body, 1, attributes=0x80)) == 0
    assert [record.offset for record in world.stored()] == [0]


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_large_batch_is_looked_through_in_the_background(large_world, codec):
    """The loop goes on meanwhile, and the buffer of the request may be used again."""
    data = large_batch(codec)

    answers = large_world.begin(data)
    assert (answers, large_world.end_offset) == ([], 0)
    large_world.runtime.scheduler.run_ready()

    assert [answer.error_code for answer in answers] == [0]
    assert large_world.end_offset == 20_000
    assert large_world.stored()[-1].value == b"v" * 100


def test_large_batches_are_appended_in_the_order_in_which_they_came(large_world):
    """One is looked through at a time, whichever connection it came from."""
    answers = [large_world.begin(build_batch(rows(1, b"%d" % n * 2_000_000))) for n in range(3)]
    large_world.runtime.scheduler.run_ready()

    assert [answer[0].base_offset for answer in answers] == [0, 1, 2]
    assert [record.value[:1] for record in large_world.stored()] == [b"0", b"1", b"2"]


def test_large_batch_that_lies_is_refused(large_world):
    """Its last record goes beyond the end of the batch."""
    section = large_batch()[61:-3]

    assert large_world.error(sealed_quickly(section, 20_000)) is ErrorCode.INVALID_RECORD
    assert large_world.error(sealed(b"", 1)) is ErrorCode.INVALID_RECORD
    assert large_world.end_offset == 0


def sealed_quickly(section, count):
    """As `handmade.sealed`, whose CRC takes long for so many bytes."""
    tail = struct.pack(">hiqqqhii", 0, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count) + section
    head = struct.pack(">qiib", 0, len(tail) + 9, -1, 2)
    return head + struct.pack(">I", crc32c(tail)) + tail


def test_leader_that_changes_while_a_large_batch_is_looked_through_refuses_it(large_world):
    """The batch is appended by a leader or not at all."""
    answers = large_world.begin(large_batch())
    large_world.lead(leader=9, epoch=2)
    large_world.runtime.scheduler.run_ready()

    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert large_world.end_offset == 0


def delete(world):
    world.manager.stop_replica([StopReplicaPartition(PARTITION, leader_epoch=1, delete=True)])


def test_large_batch_is_not_written_when_its_topic_is_deleted_meanwhile(large_world):
    """There is no partition to write to."""
    answers = large_world.begin(large_batch())
    delete(large_world)
    large_world.runtime.scheduler.run_ready()

    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("is_told", [True, False], ids=["deleted", "replaced"])
@pytest.mark.parametrize("version", [2, 9, FIRST_VERSION_WITH_IDS])
def test_large_batch_goes_to_no_other_topic_of_the_name(large_world, version, is_told):
    """It was looked through by the rules of the topic that was deleted, and sent to its id."""
    large_world.handler.leaders = SimpleNamespace(find=lambda *_: None)
    messages = message(0, b"k", b"v" * 2_000_000)
    answers = large_world.begin(messages if version == 2 else large_batch(), version)
    assert answers == []
    if is_told:
        delete(large_world)
    large_world.lead(topic_id=UUID(int=6))
    large_world.runtime.scheduler.run_ready()

    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert large_world.end_offset == 0
    assert large_world.error(SMALL) is ErrorCode.NONE  # to its name, as old clients do


@pytest.mark.parametrize("version", [9, FIRST_VERSION_WITH_IDS])
@pytest.mark.parametrize("is_told", [True, False], ids=["deleted", "replaced"])
def test_records_of_a_deleted_topic_are_not_acknowledged_by_another_of_the_name(version, is_told):
    """A batch that waited for a replica counted as safe once the new log was as long."""
    world = ProduceWorld()
    world.lead(epoch=2, isr=(BROKER, 9))
    answers = world.begin(SMALL, version, acks=-1)
    assert answers == []
    if is_told:
        delete(world)
    world.lead(topic_id=UUID(int=6))
    world.topic_id = UUID(int=6)
    world.names[world.topic_id] = PARTITION.topic
    assert world.error(SMALL, version) is ErrorCode.NONE

    assert [answer.error_code for answer in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("size", [10, 20_000], ids=["small", "large"])
def test_acknowledgement_ends_with_the_client_that_waits_for_it(size):
    """That of a large batch waited on for a client that was gone: it is appended a turn later."""
    world = ProduceWorld(flush_messages=1, **LARGE)
    world.wait_for = DelayedProduce.cancel
    answers = world.begin(build_batch(rows(size)))
    world.runtime.scheduler.run_ready()

    assert (world.end_offset, answers) == (size, [])
    assert not world.manager.delayed.produces.delayed


def test_shutdown_answers_for_large_batches(large_world):
    """Neither those that wait nor the one under way are appended to logs that are being closed."""
    answers = [large_world.begin(large_batch()) for _ in range(3)]
    large_world.manager.shutdown()
    waiting = [answer[0].error_code for answer in answers[1:]]
    large_world.runtime.scheduler.run_ready()

    assert waiting == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [answer[0].error_code for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    assert large_world.end_offset == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acknowledgement_by_so_many_is_refused(acks):
    """Only none, the leader and all that are in sync can be asked for; nothing is appended."""
    world = ProduceWorld()
    (answer,) = world.begin(build_batch(rows(1)), acks=acks)

    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert world.end_offset == 0


def test_large_batch_without_acknowledgement_closes_its_connection_when_refused(large_world):
    """acks=0: the connection is the only thing that can tell, also later."""
    answers = large_world.begin(sealed_quickly(large_batch()[61:-3], 20_000), acks=0)
    assert large_world.unanswered == 1
    large_world.runtime.scheduler.run_ready()

    assert answers == ["acks=0 produce to t-0 failed: INVALID_RECORD"]


@pytest.mark.parametrize(
    "codec",
    [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD],
    ids=lambda codec: codec.label,
)
def test_batch_that_unpacks_to_more_than_the_broker_takes_is_too_large(world, codec):
    """A bomb, whatever it is compressed to: a producer that can splits it (MESSAGE_TOO_LARGE)."""
    bomb = build_batch([(NOW_MS, b"k", bytes(70 << 20), ())], codec)

    assert len(bomb) < 1 << 20
    assert world.error(bomb) is ErrorCode.MESSAGE_TOO_LARGE
    assert world.end_offset == 0


def errors_in_memory() -> list[Exception]:
    return [each for each in gc.get_objects() if isinstance(each, KafkaError | LargeBatchError)]


@pytest.mark.parametrize("size", [300_000, 70 << 20], ids=["inline", "background"])
def test_refused_batch_leaves_nothing_behind(world, size):
    """An error that waits does not keep the frames it came through, nor what was unpacked there."""
    bomb = bytearray(build_batch([(NOW_MS, None, bytes(size), ())], CompressionType.GZIP))
    bomb[57:61] = (7).to_bytes(4, "big")  # it counts records that are not there
    bomb[23:27] = (6).to_bytes(4, "big")
    bomb[17:21] = crc32c(bomb[21:]).to_bytes(4, "big")
    gc.collect()
    known = errors_in_memory()  # some that other tests have left
    gc.disable()
    try:
        error = world.error(bomb)
        left = [each for each in errors_in_memory() if each not in known]
    finally:
        gc.enable()

    assert error
    assert left == []


def test_message_sets_of_many_empty_messages_are_bounded(world, monkeypatch):
    """Messages of fewer bytes than the limit are refused where they would take more memory."""
    monkeypatch.setattr(log_validator, "MAX_DECOMPRESSED_BYTES", 4 << 20)
    inner = message(0, None, None, magic=0) * 100_000
    assert len(inner) < 4 << 20

    assert world.error(wrapper(0, inner, magic=0), 0) is ErrorCode.MESSAGE_TOO_LARGE
    assert world.end_offset == 0


def test_large_batch_is_recompressed_in_the_background():
    """Another codec of the topic takes longer than looking through: sooner is a batch large."""
    world = ProduceWorld(compression_type="zstd")
    data = build_batch(rows(1, bytes(range(256)) * 400))

    answers = world.begin(data)
    assert answers == []
    world.runtime.scheduler.run_ready()

    assert [answer.error_code for answer in answers] == [0]
    assert world.stored()[0].value == bytes(range(256)) * 400


@pytest.mark.parametrize("cut", [20, 70])
def test_batch_behind_one_that_was_cut_off_on_its_way_is_sent_again_in_order(cut):
    """Whether the handler or the log refuses what was damaged, the client sends that one again."""
    world = ProduceWorld()

    def batch(sequence):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return build_batch(rows(1), **header)

    assert world.error(batch(0)) is ErrorCode.NONE
    damaged = bytearray(batch(1))
    damaged[-1] ^= 1
    assert world.error(damaged[:cut] if cut < 61 else damaged) is ErrorCode.CORRUPT_MESSAGE

    assert world.error(batch(2)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [world.error(batch(sequence)) for sequence in (1, 2)] == [ErrorCode.NONE] * 2
