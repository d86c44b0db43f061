"""The journal: torn tails are cut off, damage is reported, snapshots take the journal's place."""

from __future__ import annotations

import asyncio

import pytest

from ottla.errors import KafkaError
from ottla.registry import journal as journal_module
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.journal import JOURNAL_MAGIC, decode_writes, encode_write
from ottla.registry.node_tree import Write, WriteKind
from ottla.registry.tree_snapshot import frame, unframe
from ottla.testing import mock_runtime

JOURNAL = "/data/registry/journal"
SNAPSHOT = "/data/registry/snapshot"


def started(runtime) -> EmbeddedRegistry:
    """A registry that has loaded what there is."""
    registry = EmbeddedRegistry(runtime, "/data/registry")
    runtime.scheduler.run(registry.start())
    return registry


def children(runtime) -> list[str]:
    """What a new process finds, which then ends."""
    registry = started(runtime)
    names = runtime.scheduler.run(registry.children("/"))
    runtime.scheduler.run(registry.close())
    return names


@pytest.fixture
def runtime():
    """A world in which a registry with /a, /b and /c has been closed."""
    runtime = mock_runtime()
    registry = started(runtime)
    for path in ("/a", "/b", "/c"):
        runtime.scheduler.run(registry.create(path, b"data"))
    runtime.scheduler.run(registry.close())
    return runtime


def test_write_is_read_as_it_was_written():
    """Several in one frame."""
    writes = [
        Write(WriteKind.CREATE, 1, 2, "/ä", b""),
        Write(WriteKind.SET, 3, 4, "/b", b"data"),
    ]
    payload = unframe(frame(b"".join(map(encode_write, writes))), 0)

    assert payload is not None
    assert list(decode_writes(payload)) == writes


@pytest.mark.parametrize("change", [lambda f: f[:-1], lambda f: f[:3], lambda f: f[:-1] + b"x"])
def test_broken_frame_is_no_frame(change):
    """Cut, cut inside its head, or altered."""
    assert unframe(change(frame(b"payload")), 0) is None


def test_journal_cut_at_any_byte_gives_a_prefix(runtime):
    """The broker starts, says how much it dropped, and has the writes before the cut."""
    whole = runtime.disk.read_bytes(JOURNAL)
    for size in range(len(whole)):
        runtime.disk.replace(JOURNAL, whole[:size])

        assert children(runtime) == ["a", "b", "c"][: len(children(runtime))]


@pytest.mark.parametrize("garbage", [b"\0" * 50, b"\xff" * 50, b"\0\0\0\x05xxxxhello", b"x"])
def test_garbage_at_the_end_is_cut_off(runtime, garbage, caplog):
    """It was never acknowledged."""
    runtime.disk.replace(JOURNAL, runtime.disk.read_bytes(JOURNAL) + garbage)

    assert children(runtime) == ["a", "b", "c"]
    assert f"cut off {len(garbage)} bytes" in caplog.text


def test_flipped_bit_in_the_middle_keeps_the_broker_from_starting(runtime):
    """Acknowledged writes are lost: somebody must decide."""
    damaged = bytearray(runtime.disk.read_bytes(JOURNAL))
    damaged[len(JOURNAL_MAGIC) + 12] ^= 1
    runtime.disk.replace(JOURNAL, damaged)

    with pytest.raises(KafkaError, match="journal is damaged"):
        started(runtime)


@pytest.mark.parametrize("content", [b"", b"OTT", b"\0" * 20])
def test_journal_that_was_never_finished_is_begun_anew(content):
    """The crash came while the first start created it."""
    runtime = mock_runtime()
    runtime.disk.make_dirs("/data/registry")
    runtime.disk.replace(JOURNAL, content)

    assert children(runtime) == []


@pytest.mark.parametrize(
    "content",
    [
        b"something else entirely",
        JOURNAL_MAGIC + frame(encode_write(Write(WriteKind.SET, 1, 0, "/missing"))),
        JOURNAL_MAGIC + frame(b"\x09" + bytes(22)),
        JOURNAL_MAGIC + frame(b"short"),
    ],
)
def test_file_that_is_no_journal_is_not_touched(content):
    """Another program's file, or a newer version's."""
    runtime = mock_runtime()
    runtime.disk.make_dirs("/data/registry")
    runtime.disk.replace(JOURNAL, content)
    with pytest.raises(KafkaError, match="journal is damaged"):
        started(runtime)

    assert runtime.disk.read_bytes(JOURNAL) == content


def fill(runtime, monkeypatch) -> EmbeddedRegistry:
    """A registry that has been written to until its journal was folded into a snapshot."""
    monkeypatch.setattr(journal_module, "COMPACTION_BYTES", 1000)
    registry = started(runtime)
    runtime.scheduler.run(registry.create("/n", b""))
    for number in range(40):
        runtime.scheduler.run(registry.set("/n", b"%d" % number))
    return registry


def test_long_journal_becomes_a_snapshot(monkeypatch):
    """The journal begins anew, and nothing is lost on the way."""
    runtime = mock_runtime()
    fill(runtime, monkeypatch)
    runtime.disk.crash()
    registry = started(runtime)
    data, stat = runtime.scheduler.run(registry.get("/n"))

    assert runtime.disk.exists(SNAPSHOT)
    assert runtime.disk.file_size(JOURNAL) < 1200
    assert (data, stat.version) == (b"39", 40)


def test_writes_that_the_snapshot_has_are_not_applied_twice(monkeypatch):
    """A crash between the new snapshot and the emptied journal leaves both."""
    runtime = mock_runtime()
    registry = fill(runtime, monkeypatch)
    while runtime.disk.file_size(JOURNAL) <= 1000:
        runtime.scheduler.run(registry.set("/n", b"more"))
    _, before = runtime.scheduler.run(registry.get("/n"))
    runtime.disk.fail("truncate", JOURNAL)

    async def write_once_more() -> None:
        with pytest.raises(KafkaError):
            await registry.set("/n", b"in the snapshot")

    runtime.scheduler.run(write_once_more())
    runtime.disk.crash()
    data, stat = runtime.scheduler.run(started(runtime).get("/n"))

    assert (data, stat.version) == (b"in the snapshot", before.version + 1)


def test_damaged_snapshot_keeps_the_broker_from_starting(monkeypatch):
    """The journal alone would be a tree with holes."""
    runtime = mock_runtime()
    runtime.scheduler.run(fill(runtime, monkeypatch).close())
    runtime.disk.replace(SNAPSHOT, runtime.disk.read_bytes(SNAPSHOT)[:-1])

    with pytest.raises(KafkaError, match="snapshot is damaged"):
        started(runtime)


def test_cancelled_writer_does_not_stop_the_others(runtime):
    """Whoever waits no more is passed over."""
    registry = started(runtime)

    async def race() -> None:
        first = asyncio.ensure_future(registry.create("/x", b""))
        second = asyncio.ensure_future(registry.create("/y", b""))
        await asyncio.wait({first}, timeout=0)
        first.cancel()
        await second

    runtime.scheduler.run(race())
    runtime.disk.crash()

    assert children(runtime) == ["a", "b", "c", "x", "y"]
