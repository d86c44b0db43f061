"""A mirror under load whose link is cut at moments of a seed, counted record by record."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from cut_network import CLIENT, CutNetwork
from mirrors import mirroring

from ottla import Producer
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker, wait_until

PARTITIONS = 3
BATCH = 50
LIMIT_S = 300
QUICK = {"request_timeout_ms": "1000", "default_api_timeout_ms": "2000"}
"""Clients give up within a cut, as those with thirty seconds do in one of minutes."""


class Counted(NamedTuple):
    """What came of a run; `behind` is how far the mirror was at the end of each cut."""

    written: int
    lost: int
    repeated: int
    is_in_order: bool
    behind: list[int]


def on_link(network: CutNetwork) -> tuple[InProcessBroker, str]:
    """A broker with a second listener behind a proxy, and the address of that."""
    direct, behind = free_port("127.0.0.1"), free_port("127.0.0.1")
    proxy = network.proxy("far", lambda: behind)
    broker = InProcessBroker(
        listeners=f"PLAINTEXT://127.0.0.1:{direct},LINK://127.0.0.1:{behind}",
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{direct},LINK://127.0.0.1:{proxy}",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT",
    )
    return broker, f"127.0.0.1:{proxy}"


def run_with_cuts(seed: int, cuts: int, backlog: int) -> Counted:
    """Cut the link `cuts` times, each until the mirror is `backlog` records behind and says so.

    The source or the target is behind the link, as the seed says. What is under way is held, and in
    one cut of two the connections end as well. The load does not use the link.
    """
    chance = random.Random(seed)
    network = CutNetwork()
    far, address = on_link(network)
    settings = {"topics": "pages", **QUICK}
    try:
        with far, InProcessBroker() as near:
            names = ("a", "b") if chance.random() < 0.5 else ("b", "a")
            brokers = dict(sorted(zip(names, (far, near), strict=True)))
            settings[f"{names[0]}_bootstrap_servers"] = address
            a, b = brokers.values()
            a.create_topic("pages", partitions=PARTITIONS)
            codec = chance.choice(("none", "lz4", "zstd"))
            written = [0] * PARTITIONS
            behind = []
            with (
                Producer(a.bootstrap_servers, compression_type=codec) as producer,
                mirroring(brokers, **settings) as mirror,
            ):

                def write() -> None:
                    partition = chance.randrange(PARTITIONS)
                    for _ in range(chance.randint(1, BATCH)):
                        producer.send("pages", str(written[partition]), partition=partition)
                        written[partition] += 1
                    producer.flush()

                def missing() -> int:
                    return sum(written) - len(b.records("a.pages"))

                write()
                b.wait_for_records("a.pages", sum(written), limit=LIMIT_S)
                for _ in range(cuts):
                    write()
                    network.isolate(CLIENT, "far")
                    until = sum(written) + backlog + BATCH
                    while sum(written) < until:
                        write()
                    wait_until(
                        lambda: mirror.statuses()[0].error,
                        "an error",
                        LIMIT_S,
                        seen=mirror.statuses,
                    )
                    behind.append(missing())
                    if chance.random() < 0.5:
                        network.reset(CLIENT, "far")
                    network.heal()
                    b.wait_for_records("a.pages", sum(written), limit=LIMIT_S)
            copies = [b.records("a.pages", partition=each) for each in range(PARTITIONS)]
    finally:
        network.close()
    return counted(written, [[int(r.value) for r in copy] for copy in copies], behind)


def counted(written: list[int], copies: list[list[int]], behind: list[int]) -> Counted:
    """Compare what was written to each partition, the numbers from 0 on, with its copy."""
    lost = repeated = 0
    for count, copy in zip(written, copies, strict=True):
        times = Counter(copy)
        lost += sum(number not in times for number in range(count))
        repeated += sum(each - 1 for each in times.values())
    return Counted(
        sum(written), lost, repeated, all(copy == sorted(copy) for copy in copies), behind
    )
