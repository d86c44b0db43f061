"""A broker in a process of its own, as a person starts it: for tests and for benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.testing.server_process import ServerProcess


class BrokerProcess(ServerProcess):
    """`ottla broker` on a free loopback port; the port stays the same over restarts."""

    command = "broker"
    title = "the broker"
    ready = re.compile(r"ready at (\S+)")

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        settings = {
            "broker.id": "0",
            "log.dirs": str(data_dir),
            # Not Kafka's 3 s, to be quick; not 0, which kafka-python's first join does not expect:
            # it may then share out topics whose metadata it has not got yet.
            "group.initial.rebalance.delay.ms": "200",
        }
        given = {name.replace("_", "."): str(value) for name, value in overrides.items()}
        super().__init__(data_dir, settings | given)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def address_settings(self) -> dict[str, str]:
        return {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}
