"""Translation of offsets beside MirrorMaker's own classes, over random histories."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from benchmarks.peers.downloads import PEERS, maven_jars, require

from ottla.clients.mirror_records import OffsetSync
from ottla.mirror.offset_sync import OffsetSyncStore, SyncedPartition
from ottla.structs import TopicPartition

HISTORIES = 1000
PAGES = TopicPartition("pages", 0)
STEPS = (1, 1, 1, 2, 3, 7, 100, 101, 5_000, 1 << 20, 1 << 40)

Event = tuple[Any, ...]
Ask = Callable[[list[list[Event]]], list[list[Any]]]


@pytest.fixture(scope="module")
def kafka() -> Ask:
    """MirrorMaker's answers to many histories, of one program."""
    java = require("java", "a Java runtime, 17 or newer")
    program = PEERS / "java" / "mirror-4.1" / "Translate.java"

    def ask(histories: list[list[Event]]) -> list[list[Any]]:
        done = subprocess.run(
            [java, "-cp", f"{maven_jars('mirror-4.1')}/*", str(program)],
            input="".join(json.dumps(each) + "\n" for each in histories),
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def translations(seed: int) -> list[Event]:
    """A store that is started once or more, with syncs, rewinds of the source, and questions."""
    chance = random.Random(seed)
    steps = chance.choice((STEPS, STEPS[:6], (1,), (101,)))
    events: list[Event] = []
    written: list[tuple[int, int]] = []
    upstream, downstream = chance.choice((0, 5_000)), chance.choice((0, 70))

    def start() -> None:
        events.append(("start", chance.random() < 0.5))
        for number, sync in enumerate(written):
            events.append(("sync", *sync))
            if number % 50 == 0:
                events.append(("ask", sync[0]))
        events.append(("end",))

    start()
    for _ in range(chance.choice((3, 30, 200))):
        kind = chance.random()
        if kind < 0.02:
            start()
        elif kind < 0.04:
            upstream = chance.randint(0, upstream)
        step = chance.choice(steps)
        upstream, downstream = upstream + step, downstream + chance.randint(0, step)
        written.append((upstream, downstream))
        events.append(("sync", upstream, downstream))
        for _ in range(chance.choice((0, 1, 4))):
            near = chance.choice(written)[0] + chance.choice((-1, 0, 1, 50))
            events.append(("ask", max(0, chance.choice((near, chance.randint(0, upstream))))))
    return [*events, *(("ask", each + more) for each, _ in written[-70:] for more in (0, 1))]


def ours(history: list[Event]) -> list[int | None]:
    """Our answers to the same."""
    found = []
    store = OffsetSyncStore()
    for kind, *values in history:
        if kind == "start":
            store = OffsetSyncStore(keeps_history=values[0])
        elif kind == "end":
            store.finish_loading()
        elif kind == "sync":
            store.add(OffsetSync(PAGES, *values))
        else:
            found.append(store.translate(PAGES, values[0]))
    return found


def test_translations_are_mirrormakers(kafka):
    """A thousand histories, with restarts, rewinds and gaps: the same answer to each question."""
    histories = [translations(seed) for seed in range(HISTORIES)]
    theirs = kafka(histories)
    different = [
        seed
        for seed, (history, answers) in enumerate(zip(histories, theirs, strict=True))
        if ours(history) != answers
    ]

    assert different == []
    assert sum(answer not in (None, -1) for answers in theirs for answer in answers) > 50_000


def copied(seed: int) -> tuple[int, list[tuple[int, int, int]]]:
    """offset.lag.max, and runs of records (upstream, downstream, count) with gaps."""
    chance = random.Random(seed)
    upstream, downstream = chance.choice((0, 5_000)), chance.choice((0, 70))
    runs = []
    for _ in range(chance.randint(1, 20)):
        count = chance.choice((1, 2, 7, 150))
        runs.append((upstream, downstream, count))
        upstream += count + chance.choice((0, 0, 0, 1, 40))
        downstream = max(0, downstream + count + chance.choice((0, 0, 0, 1, 3, -120)))
    return chance.choice((0, 1, 10, 100)), runs


def test_syncs_are_due_where_mirrormakers_are(kafka):
    """The records that are synced at once, of runs with gaps and of a target that lost its end."""
    given = [copied(seed) for seed in range(HISTORIES)]
    pairs = [
        [(up + each, down + each) for up, down, count in runs for each in range(count)]
        for _, runs in given
    ]
    theirs = kafka([[("copied", given[n][0], *each)] for n, each in enumerate(pairs)])

    for (lag, runs), (expected,) in zip(given, theirs, strict=True):
        partition = SyncedPartition(lag)
        due, first = [], 0
        for upstream, downstream, count in runs:
            due += [first + index for index in partition.advance(upstream, downstream, count)]
            first += count
        assert due == expected, f"offset.lag.max={lag}, {runs}"
