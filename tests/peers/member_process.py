"""Members of a group, each a process of a peer that says what it is given and what it reads."""

from __future__ import annotations

import json
import subprocess
import threading

from cluster_load import LIMIT_S
from peer_program import PeerProgram

CHANGES = ("assigned", "revoked", "lost")


class MemberProcess:
    """One member, from its start to the end of the block."""

    def __init__(self, name: str, servers: str, topic: str, group: str, protocol: str) -> None:
        self.name = name
        self.said: list[dict[str, list[int]]] = []
        command = PeerProgram(name).command("member", servers, topic, group, protocol)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(json.loads(line))

    def __enter__(self) -> MemberProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        """It leaves the group, or is killed if it does not."""
        killer = threading.Timer(LIMIT_S, self._process.kill)
        killer.start()
        self._process.communicate("\n")
        killer.cancel()
        self._listener.join(LIMIT_S)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def changes(self) -> list[dict[str, list[int]]]:
        """What it was told of its partitions, without what changes nothing."""
        return [each for each in list(self.said) if any(each.get(what) for what in CHANGES)]

    @property
    def read(self) -> list[tuple[int, int]]:
        """Partition and number of each record, in the order of reading."""
        return [(each["read"][0], each["read"][1]) for each in list(self.said) if "read" in each]

    @property
    def partitions(self) -> set[int]:
        """What it has now."""
        held: set[int] = set()
        for change in self.changes:
            held |= set(change.get("assigned", ()))
            held -= {*change.get("revoked", ()), *change.get("lost", ())}
        return held
