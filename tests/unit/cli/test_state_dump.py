"""`ottla dump-log` on snapshots, checkpoints and transaction indexes."""

from ottla.log.producer_snapshot import encode_snapshot
from ottla.log.producer_state_entry import BatchMetadata, ProducerStateEntry
from ottla.log.transaction_index import AbortedTxn, TransactionIndex
from ottla.runtime.local_disk import LocalDisk


def test_producer_snapshot_shows_each_producer(ottla, tmp_path):
    """The newest batch is shown where it is remembered."""
    known = ProducerStateEntry(7, producer_epoch=1, last_timestamp_ms=1000)
    known.add_batch(1, BatchMetadata(9, 109, 4, 1000))
    path = tmp_path / "00000000000000000110.snapshot"
    path.write_bytes(encode_snapshot([known, ProducerStateEntry(8, current_txn_first_offset=50)]))

    assert ottla("dump-log", "--files", path).lines[1:] == [
        "producerId: 7 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: None "
        "firstSequence: 5 lastSequence: 9 lastOffset: 109 offsetDelta: 4 timestamp: 1000",
        "producerId: 8 producerEpoch: -1 coordinatorEpoch: -1 currentTxnFirstOffset: Some(50) ",
    ]


def test_damaged_snapshot_is_one_line(ottla, tmp_path):
    """A snapshot with a wrong CRC is one line."""
    path = tmp_path / "00000000000000000110.snapshot"
    path.write_bytes(encode_snapshot([])[:-1] + b"\x01")

    outcome = ottla("dump-log", "--files", path)

    assert outcome.status == 1
    assert outcome.err == f"{path}: wrong version or CRC\n"


def test_leader_epochs_are_shown(ottla, tmp_path):
    """Each epoch with the offset at which it begins."""
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 1500\n")

    assert ottla("dump-log", "--files", path).lines[1:] == [
        "epoch: 0 startOffset: 0",
        "epoch: 3 startOffset: 1500",
    ]


def test_damaged_or_missing_checkpoint_is_one_line(ottla, tmp_path):
    """The file is named."""
    path = tmp_path / "leader-epoch-checkpoint"
    missing = ottla("dump-log", "--files", path)
    path.write_text("0\n5\n0 0\n")
    damaged = ottla("dump-log", "--files", path)

    assert (missing.status, damaged.status) == (1, 1)
    assert "No such file" in missing.err
    assert str(path) in damaged.err


def test_aborted_transactions_are_shown(ottla, tmp_path):
    """Each with its producer and its range."""
    path = tmp_path / "00000000000000000100.txnindex"
    TransactionIndex(LocalDisk(), str(path), 100).append(AbortedTxn(7, 101, 105, 103))

    assert ottla("dump-log", "--files", path).lines[1:] == [
        "version: 0 producerId: 7 firstOffset: 101 lastOffset: 105 lastStableOffset: 103"
    ]
