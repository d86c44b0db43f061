"""Every write that ZooKeeper has accepted, read from its transaction log, and what must be true.

A watch tells of the last state only, and a reader that asks again and again misses states as well;
the log has them all, in their order. Its format is of ZooKeeper 3.4 and later: a head of 16 bytes,
then a checksum (Adler-32), a length and the transaction for each write, and zeros to its end.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

HEAD_BYTES = 16
ENTRY = struct.Struct(">qi")
TRANSACTION = struct.Struct(">qiqqi")
CREATIONS = {1, 15, 19, 21}
SET, MULTI = 5, 14
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
NOBODY = -1
BELIEF = re.compile(r"broker (\d+) is the controller in epoch (\d+)")


class Write(NamedTuple):
    """A node was made or set; writes with one number were made together."""

    zxid: int
    path: str
    data: bytes
    is_new: bool


class Election(NamedTuple):
    """A broker became the controller."""

    zxid: int
    broker_id: int
    epoch: int


class Layout:
    """Reads ZooKeeper's serialized fields one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def integer(self) -> int:
        (found,) = struct.unpack_from(">i", self.data, self.position)
        self.position += 4
        return int(found)

    def buffer(self) -> bytes:
        size = max(0, self.integer())
        self.position += size
        return self.data[self.position - size : self.position]


def transactions(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, type and fields of each transaction in one file; a torn one is its end."""
    data = path.read_bytes()
    position = HEAD_BYTES
    while position + ENTRY.size <= len(data):
        checksum, size = ENTRY.unpack_from(data, position)
        position += ENTRY.size
        body = data[position : position + size]
        if size < TRANSACTION.size or zlib.adler32(body) != checksum:
            return
        _, _, zxid, _, kind = TRANSACTION.unpack_from(body)
        yield zxid, kind, body[TRANSACTION.size :]
        position += size + 1


def writes_of(zxid: int, kind: int, body: bytes) -> Iterator[Write]:
    """The writes of one transaction."""
    layout = Layout(body)
    if kind in CREATIONS or kind == SET:
        path = layout.buffer().decode()
        yield Write(zxid, path, layout.buffer(), kind != SET)
    elif kind == MULTI:
        for _ in range(layout.integer()):
            part = layout.integer()
            yield from writes_of(zxid, part, layout.buffer())


def all_writes(data_dir: Path, chroot: str) -> list[Write]:
    """What was written below the chroot, and where there, since the server has its data."""
    files = (data_dir / "version-2").glob("log.*")
    return [
        write._replace(path=write.path.removeprefix(chroot))
        for file in sorted(files, key=lambda each: int(each.suffix[1:], 16))
        for transaction in transactions(file)
        for write in writes_of(*transaction)
        if write.path.startswith(f"{chroot}/")
    ]


@dataclass(frozen=True)
class RegistryHistory:
    """Who was the controller, and who led the partitions of a topic, from first to last."""

    elections: Sequence[Election]
    states: dict[int, list[tuple[int, dict[str, Any]]]]
    """By partition; each state with the number of its write."""

    @classmethod
    def of(cls, data_dir: Path, chroot: str, topic: str) -> RegistryHistory:
        writes = all_writes(data_dir, chroot)
        epochs = {w.zxid: int(w.data) for w in writes if w.path == CONTROLLER_EPOCH}
        elections = [
            Election(w.zxid, json.loads(w.data)["brokerid"], epochs[w.zxid])
            for w in writes
            if w.path == CONTROLLER and w.is_new
        ]
        place = re.compile(rf"/brokers/topics/{re.escape(topic)}/partitions/(\d+)/state")
        states: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for write in writes:
            if match := place.fullmatch(write.path):
                found = states.setdefault(int(match[1]), [])
                found.append((write.zxid, json.loads(write.data)))
        return cls(elections, states)

    def leaders(self, partition: int) -> list[int]:
        """Who led it, each change once; -1 where nobody did."""
        found = [int(state["leader"]) for _, state in self.states[partition]]
        return found[:1] + [new for old, new in pairwise(found) if new != old]

    def controllers_since(self, zxid: int) -> int:
        """How many controllers were elected after this write."""
        return sum(each.zxid > zxid for each in self.elections)

    @property
    def first_zxid(self) -> int:
        """The first write about the topic."""
        return min(states[0][0] for states in self.states.values())

    def check(self, *, is_unclean: bool = False) -> None:
        """One controller in an epoch, one leader in an epoch, each elected from those in sync."""
        for old, new in pairwise(self.elections):
            assert new.epoch == old.epoch + 1, f"{old} was followed by {new}"
        for partition, states in self.states.items():
            for zxid, state in states:
                controller = [each for each in self.elections if each.zxid <= zxid][-1]
                assert state["controller_epoch"] == controller.epoch, (
                    f"partition {partition}: {state} was written in the time of {controller}"
                )
                assert state["leader"] in (NOBODY, *state["isr"]), f"{partition}: {state}"
            for (_, old), (_, new) in pairwise(states):
                change = f"partition {partition}: {old} was followed by {new}"
                assert new["leader_epoch"] >= old["leader_epoch"], change
                if new["leader"] != old["leader"]:
                    assert new["leader_epoch"] > old["leader_epoch"], f"two leaders: {change}"
                    is_clean = new["leader"] in (NOBODY, *old["isr"])
                    assert is_clean or is_unclean, f"an unclean leader: {change}"

    def check_beliefs(self, logs: str) -> None:
        """No broker took itself for the controller of an epoch that was another one's."""
        elected = {each.epoch: each.broker_id for each in self.elections}
        beliefs = BELIEF.findall(logs)
        assert beliefs, "no broker has logged that it is the controller"
        for broker_id, epoch in beliefs:
            assert elected[int(epoch)] == int(broker_id), f"broker {broker_id} in epoch {epoch}"
