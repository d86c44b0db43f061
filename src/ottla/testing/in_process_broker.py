"""A broker in a thread of the test's own process: nothing is left behind.

It is the broker itself, with sockets on the loopback interface, so that any client of Kafka can
use it. Its disk is in memory, or a directory. Calls of a test (`LiveBrokers`) are answered on
the broker's own loop, from the state that the broker has: no admin client, no polling by metadata.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import tarfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

from ottla.config.broker_config import BrokerConfig
from ottla.config.known_keys import family_of
from ottla.runtime import Disk, LocalDisk
from ottla.runtime.io_thread import IoThread
from ottla.server.broker import Broker
from ottla.server.broker_process import new_loop
from ottla.testing.live_brokers import (
    BrokerLife,
    CollectorPause,
    LiveBrokers,
    T,
    collect_young,
    dotted,
)
from ottla.testing.memory_disk import MemoryDisk

logger = logging.getLogger(__name__)


SETTINGS: Final[dict[str, str | int]] = {
    "broker.id": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Small and quick; each may be overridden."""
OF_LISTENERS: Final = "listener.name."
SETTINGS_NAME: Final = "settings.json"
DATA_NAME: Final = "data"
STOP_LIMIT_MS: Final = 30_000


class InProcessBroker(LiveBrokers):
    """A broker in a thread of this process, as a context manager or by `start` and `stop`.

    `with InProcessBroker(num_partitions=3) as broker:` is a broker in memory; with a `data_dir` it
    is one on disk. Its data are there when it is started again. Settings are those of
    docs/operate/configuration/broker.md, with underscores for dots; without others it listens on a
    free port of 127.0.0.1, which stays the same over restarts.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        disk: MemoryDisk | None = None,
        **settings: str | int,
    ) -> None:
        """`disk` takes the place of a new one in memory; it may hold the data of a broker."""
        super().__init__()
        if not isinstance(data_dir, str | PathLike | None):
            raise TypeError(
                f"data_dir={data_dir!r}: must be a directory, as a str or a Path, or None for a "
                "broker in memory; settings are keywords, such as num_partitions=3"
            )
        if data_dir is not None and disk is not None:
            raise ValueError("data_dir and disk: a broker is on a directory or in memory, not both")
        self.disk = (disk or MemoryDisk()) if data_dir is None else None
        """The disk in memory, with its faults; None for a broker on a directory."""
        if self.disk is not None:
            self.disk.make_dirs("/data")
        self.settings: dict[str, str | int] = {
            **SETTINGS,
            "log.dirs": "/data" if data_dir is None else str(data_dir),
            **broker_settings(settings),
        }
        self.port = 0
        """The port of the first listener; 0 before the first start."""
        self._thread: IoThread | None = None
        self._life: BrokerLife | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the first listener, as clients see it; RuntimeError before `start`."""
        end_point = self._running.broker.end_points[0]
        return f"{end_point.host}:{end_point.port}"

    @property
    def broker(self) -> Broker:
        """The broker itself; its state belongs to its thread, so use it within `run`."""
        return self._running.broker

    @property
    def is_running(self) -> bool:
        """Whether it serves: False before `start`, after an end, and after its disk has failed."""
        return self._life is not None and not self._life.is_over

    @CollectorPause()
    def start(self) -> Self:
        """Start it, or start it again on its data; returns when it serves clients."""
        if self.is_running:
            raise RuntimeError("the broker runs already")
        self.kill()  # the rest of one whose disk has failed
        loop = partial(new_loop, BrokerConfig.parse(self.settings))
        thread = IoThread("ottla-broker", is_started=False, new_loop=loop)
        self._life = thread.begin_with(self._start())
        self._thread = thread
        self.port = self._life.broker.end_points[0].port
        return self

    async def _start(self) -> BrokerLife:
        address = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
        life = BrokerLife(address | self.settings, self.disk, self.faults)
        await life.start()
        life.prepare_when_asked()
        return life

    def move_coordinator(self, group_id: str) -> None:
        """Have the coordinator of a group go and come back, as after a change of its leader.

        Members get NOT_COORDINATOR, look for the coordinator, and find it here with its data.
        """

        async def move() -> None:
            groups = self._running.broker.coordinators.groups
            partition = groups.partition_for(group_id)
            groups.on_resignation(partition)
            groups.on_election(partition)

        self.run(move())

    def fill_disk(self, room_in_bytes: int = 0) -> None:
        """Leave so much room on the disk in memory: larger writes are refused, and not stored.

        The topics of coordinators are there before. ValueError for a broker on a directory.
        """

        async def fill(disk: MemoryDisk) -> None:
            if preparing := self._running.prepare_coordinators():
                await asyncio.wait([preparing])
            disk.fill(room_in_bytes)

        if self.disk is None:
            raise ValueError(f"the disk of {self.settings['log.dirs']} is the machine's own")
        self.run(fill(self.disk))

    def free_disk(self) -> None:
        """End the shortage that `fill_disk` has begun."""
        if self.disk is not None:
            self.disk.capacity_in_bytes = None

    def save(self, path: Path | str) -> None:
        """Write all that it has stored to one file (a tar archive), whether or not it runs.

        The file also has its settings; `load` makes a broker of it.
        """
        with tarfile.open(path, "w:gz") as archive:
            _add_to(archive, SETTINGS_NAME, json.dumps(self.settings).encode())
            if self.is_running:
                self.run(self._save(archive))
            else:
                asyncio.run(self._save(archive))

    async def _save(self, archive: tarfile.TarFile) -> None:
        root = str(self.settings["log.dirs"])
        disk: Disk = self.disk or LocalDisk()
        for file in _files_below(disk, root):
            _add_to(archive, f"{DATA_NAME}/{file}", disk.read_bytes(f"{root}/{file}"))

    @classmethod
    def load(
        cls, path: Path | str, data_dir: Path | str | None = None, **settings: str | int
    ) -> Self:
        """A broker, not yet started, with the data that `save` has written; the file stays.

        It has its data in memory, or in `data_dir`, which must be empty, and the settings of the
        saved one, unless they are given.
        """
        with tarfile.open(path) as archive:
            contents = {each.name: _read_from(archive, each) for each in archive if each.isfile()}
        saved = json.loads(contents.pop(SETTINGS_NAME))
        kept = {name: value for name, value in saved.items() if name != "log.dirs"}
        broker = cls(data_dir, **{**kept, **settings})
        root, disk = str(broker.settings["log.dirs"]), broker.disk or LocalDisk()
        if disk.exists(root) and disk.list_dir(root):
            raise ValueError(f"data_dir={root}: it must be empty to load {path} into it")
        for name, data in contents.items():
            target = f"{root}/{name.removeprefix(f'{DATA_NAME}/')}"
            disk.make_dirs(target.rpartition("/")[0])
            disk.replace(target, data)
        return broker

    def stop(self) -> None:
        """A clean stop: logs are flushed and closed. Does nothing if it does not run."""
        self._end(BrokerLife.stop)

    def kill(self) -> None:
        """End it at once: written bytes stay, as in the page cache after `kill -9`."""
        self._end(BrokerLife.kill)

    def _end(self, end: Callable[[BrokerLife], Coroutine[Any, Any, None]]) -> None:
        thread, life = self._thread, self._life
        self._thread = self._life = None
        if thread is None or life is None:
            return
        thread.end_with(end(life), STOP_LIMIT_MS)
        del thread, life
        collect_young()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's loop, and return its result."""
        if self._thread is None:
            coroutine.close()
            raise RuntimeError("the broker is not running")
        return self._thread.run(coroutine)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _brokers(self) -> list[Broker]:
        return [self._running.broker]

    @property
    def _running(self) -> BrokerLife:
        if self._life is None or self._life.is_over:
            raise RuntimeError("the broker is not running")
        return self._life


def broker_settings(keywords: Mapping[str, str | int]) -> dict[str, str | int]:
    """Keywords under the names of the settings; TypeError for one that no broker has.

    A name that has dots is taken as it is: it may be a setting of a plug-in's.
    """
    for keyword, value in keywords.items():
        name = keyword.replace("_", ".")
        is_known = name in BrokerConfig.known_names() or name.startswith(OF_LISTENERS)
        if "." not in keyword and not is_known and not family_of(name, BrokerConfig.refused):
            raise TypeError(
                f"{keyword}={value!r}: a broker has no setting {name}; settings are keywords with "
                "the names in docs/operate/configuration/broker.md, underscores for dots, such as "
                "num_partitions=3; one of a plug-in's is given as **{'its.name': value}"
            )
    return dotted(keywords)


def _files_below(disk: Disk, root: str) -> Iterator[str]:
    """The paths of all files below a directory, from there; locks are the process's own."""
    pending = [""]
    while pending:
        folder = pending.pop()
        for name in disk.list_dir(f"{root}/{folder}".rstrip("/")):
            path = f"{folder}/{name}".lstrip("/")
            if disk.is_dir(f"{root}/{path}"):
                pending.append(path)
            elif name != ".lock":
                yield path


def _add_to(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def _read_from(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None, "it is a file"
    with file:
        return file.read()
