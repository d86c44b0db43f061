"""A client of another language, behind one command line that all of them have.

produce SERVERS TOPIC CODEC TAG COUNT          the records of `records.py`, idempotent where it can
consume SERVERS TOPIC GROUP COUNT PROTOCOL     two members; says `assigned` once both have work,
                                               then JSON for each record; commits in the end
admin SERVERS TOPIC                            every admin call; a line of JSON
transact SERVERS SOURCE TARGET GROUP COUNT     copies in transactions, some of which are aborted

One more of the Java clients:

read SERVERS TOPIC                             JSON for each record, up to the topic's ends

Where the environment has PEER_PROTOCOL, all but sarama log in: PEER_MECHANISM, PEER_USER,
PEER_PASSWORD, PEER_TOKEN for OAUTHBEARER, and PEER_CA, the authorities as PEM.

Two more, of the Java clients and franz-go, go on while brokers die, and say what they do as JSON:

copy SERVERS SOURCE TARGET NAME SIZE PROTOCOL  as tests/system/cluster/group_copier.py, until killed
member SERVERS TOPIC GROUP PROTOCOL            reads numbers and commits, until its input ends
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.peers.downloads import (
    compiled_go,
    compiled_java,
    installed_node_modules,
    kafka_jars,
)
from benchmarks.peers.kafka_tools import JVM_OPTIONS

LIMIT_SECONDS = 90


class Capabilities(NamedTuple):
    """What a client can do at all."""

    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    transactions: bool = True


PEERS = {
    "java-3.9": Capabilities(),
    "java-4.1": Capabilities(),
    "franz-go": Capabilities(),
    "sarama": Capabilities(),
    "kafkajs": Capabilities(codecs=("none", "gzip", "snappy")),
}


class PeerProgram:
    """One of the peers, ready to run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.capabilities = PEERS[name]
        self._command = _command(name)

    def command(self, verb: str, *arguments: str) -> list[str]:
        """The command line for a verb."""
        return [*self._command, verb, *arguments]

    def run(self, verb: str, *arguments: str) -> list[str]:
        """The lines that a verb prints; it must end well, and in time."""
        done = subprocess.run(
            self.command(verb, *arguments),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        said = f"{self.name} {verb} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said[-4000:]
        return done.stdout.splitlines()

    @contextmanager
    def consuming(self, *arguments: str) -> Iterator[list[dict[str, object]]]:
        """Two members that share the partitions; the list is full once the block is left."""
        records: list[dict[str, object]] = []
        with subprocess.Popen(
            self.command("consume", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            killer = threading.Timer(LIMIT_SECONDS, process.kill)
            killer.start()
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stdout:
                    if line.strip() == "assigned":
                        yield records
                        break
                    records.append(json.loads(line))
                records += [json.loads(line) for line in process.stdout]
                errors = process.stderr.read()
                assert process.wait() == 0, f"{self.name}: {len(records)} records; {errors}"
            finally:
                killer.cancel()
                process.kill()


def _command(name: str) -> list[str]:
    if name.startswith("java-"):
        version = name.removeprefix("java-")
        path = f"{compiled_java(version)}:{kafka_jars(version)}/*"
        return ["java", *JVM_OPTIONS, "-cp", path, "Peer"]
    if name == "kafkajs":
        return ["node", str(installed_node_modules() / "peer.mjs")]
    return [str(compiled_go() / "peers"), name]
