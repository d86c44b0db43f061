"""A group of copiers on a cluster, and what must be true of their copy whoever is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster_load import LIMIT_S, QUIET, ClusterView
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from ottla import Admin, TopicPartition
from ottla.testing import wait_until

PROGRAM = Path(__file__).with_name("group_copier.py")
LATEST = -1
LIBRARIES = ("confluent", "ottla", "confluent")


class CommittedReader:
    """Reads the copy all the time, as a reader of committed data; the copy must be the input.

    Each partition's input is 0, 1, 2 and so on, so the copy is right as long as the next number is
    the next one: then nothing is missing, repeated, torn or aborted.
    """

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self.next = [0] * partitions
        self.ends = [0] * partitions
        self.problems: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{topic} reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )
        self._consumer.assign([Place(topic, index, 0) for index in range(partitions)])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(self.next)

    def _run(self) -> None:
        while not self._is_over.is_set():
            for message in self._consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    self._note(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.ends[message.partition()] = message.offset()

    def _note(self, message: Message) -> None:
        partition, value = message.partition(), message.value()
        if value != b"%d" % self.next[partition]:
            self.problems.append(f"{partition} {value!r} instead of {self.next[partition]}")
            return
        self.next[partition] += 1

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(LIMIT_S)
        self._consumer.close()


class CopierProcess:
    """One copier under its transactional id: however it ends, it is started again.

    It may be killed; other ends are crashes.
    """

    def __init__(self, program: Sequence[str], *words: str) -> None:
        self.words = words
        self._command = [*program, *words[1:]]
        self.said: list[dict[str, object]] = []
        self.starts = 0
        self.crashes = 0
        self.errors = ""
        self._is_over = False
        self._process: subprocess.Popen[str] | None = None
        self._keeper = threading.Thread(target=self._keep)
        self._keeper.start()

    def all(self, what: str) -> list[object]:
        return [each[what] for each in list(self.said) if what in each]

    def _keep(self) -> None:
        while not self._is_over:
            with subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as self._process:
                self.starts += 1
                assert self._process.stdout is not None
                assert self._process.stderr is not None
                for line in self._process.stdout:
                    if line.endswith("\n"):  # one that is killed may leave half a line
                        self.said.append(json.loads(line))
                self.errors += self._process.stderr.read()
            self.crashes += self._process.returncode != -signal.SIGKILL

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """It does nothing any more, and does not know; another goes on under its id."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Killed, not to come back."""
        self._is_over = True
        self.kill()
        self._keeper.join(LIMIT_S)


class CopyJob:
    """Copiers in a group, their input, which grows as the test says, and who reads their copy.

    `programs` has the command lines of libraries that are not of `group_copier.py`.
    """

    def __init__(
        self,
        view: ClusterView,
        source: str,
        *,
        partitions: int = 9,
        size: int = 750,
        protocol: str = "classic",
        libraries: tuple[str, ...] = LIBRARIES,
        programs: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.view = view
        self.source, self.target = source, f"{source}-copy"
        self.partitions = partitions
        self.written = 0
        for topic in (self.source, self.target):
            view.create(topic, partitions)
        servers = view.bootstrap_servers
        self.reader = CommittedReader(servers, self.target, partitions)
        self._writer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )
        self.copiers = [
            CopierProcess(
                (programs or {}).get(library, (sys.executable, str(PROGRAM), library)),
                *(library, servers, self.source, self.target),
                *(f"{source} copier {number}", str(size), protocol),
            )
            for number, library in enumerate(libraries)
        ]

    def __enter__(self) -> CopyJob:
        return self

    def __exit__(self, *exc: object) -> None:
        for copier in self.copiers:
            copier.end()
        self.reader.close()

    def write(self, count: int) -> None:
        """So many records more, as evenly over the partitions as can be."""
        for number in range(self.written, self.written + count):
            number, partition = divmod(number, self.partitions)
            self._writer.produce(self.source, b"%d" % number, partition=partition)
            self._writer.poll(0)
        self.written += count
        assert self._writer.flush(LIMIT_S) == 0, "the input could not be written"

    def until_copied(self, count: int, limit_s: float = 2 * LIMIT_S) -> None:
        """Wait until readers of committed data have so many records."""
        self.until(lambda: self.reader.count >= count, f"{count} records are copied", limit_s)

    def until(self, condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait for something, and for no longer than the copy is right."""
        wait_until(lambda: condition() or self.reader.problems, what, limit_s, seen=self.report)
        assert not self.reader.problems, self.reader.problems[:5]

    def until_all_in_sync(self, brokers: list[int]) -> None:
        topics = (self.source, self.target, "__consumer_offsets", "__transaction_state")
        for topic in topics:
            self.view.until_all_in_sync(topic, brokers)

    def kill_any_copier(self, chance: random.Random | None = None) -> None:
        (chance or random.Random()).choice(self.copiers).kill()

    def finish(self, limit_s: float = 2 * LIMIT_S) -> None:
        """Wait until all is copied, and no transaction is open; check the copy."""
        self.until_copied(self.written, limit_s)
        self.until(
            lambda: self.ends(committed=True) == self.ends(committed=False), "all have ended"
        )
        self.until(
            lambda: self.reader.ends == self.ends(committed=True), "the reader is at the end"
        )
        assert not any(copier.crashes for copier in self.copiers), self.report()
        for index, copied in enumerate(self.reader.next):
            assert copied == len(range(index, self.written, self.partitions)), index

    def ends(self, *, committed: bool) -> list[int]:
        """Where the copy's partitions end, for whoever reads committed or all data."""
        isolation = "read_committed" if committed else "read_uncommitted"
        places = [TopicPartition(self.target, index) for index in range(self.partitions)]
        with Admin(self.view.bootstrap_servers) as admin:
            found = admin.list_offsets(dict.fromkeys(places, LATEST), isolation)
        return [found[place].offset for place in places]

    def report(self) -> str:
        """What the copiers have said last."""
        lines = [f"{self.reader.count} of {self.written} copied: {self.reader.next}"]
        for copier in self.copiers:
            lines += [f"{copier.words[0]}, {copier.starts} starts: {copier.said[-6:]}"]
            lines += [copier.errors[-1500:]]
        return "\n".join(lines)

    def summary(self) -> str:
        """How much has happened."""
        each = [
            f"{copier.words[0]}: {copier.starts} starts, "
            f"{len(copier.all('copied'))} commits, "
            f"{len(copier.all('aborted'))} aborts, {len(copier.all('refused'))} refusals"
            for copier in self.copiers
        ]
        return "; ".join(each)
