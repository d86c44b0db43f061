"""The overview: what wants attention first, then how much the cluster has and does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.console.page import ConsolePage, Data, Visit
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.clients.metadata import Cluster, TopicInfo

BUSIEST: Final = 8
MOST_SHOWN: Final = 20


class Attention(NamedTuple):
    """Something that a person should look at: a sentence, and the page that shows it."""

    text: str
    path: str
    is_bad: bool = True
    """Whether data or service are in danger; else it is worth a look."""
    command: str = ""


Watcher = Callable[[Visit], Awaitable[list[Attention]]]


class BusyTopic(NamedTuple):
    """A topic with its newest rate, in records a second."""

    name: str
    per_second: float
    rates: list[float]


def overview(watchers: Sequence[Watcher]) -> ConsolePage:
    """The page; each watcher adds things that want attention, the worst of them first."""

    async def load(visit: Visit) -> Data:
        found = await asyncio.gather(*(watch(visit) for watch in watchers))
        wanted = [each for some in found for each in some]
        wanted.sort(key=lambda each: not each.is_bad)
        return {
            "attention": wanted[:MOST_SHOWN],
            "attention_count": len(wanted),
            **await numbers(visit),
        }

    command = "ottla topics --describe --unavailable-partitions"
    return ConsolePage(
        "/", load, "overview.html", "Overview", "Overview", command, refresh_s=5, home=True
    )


async def numbers(visit: Visit) -> Data:
    """How much the cluster has, and does."""
    cluster, rates = await visit.cluster.snapshot(), visit.cluster.rates
    own = {"controller": None} if await visit.cluster.is_kraft() else {}
    return {
        **visit.cluster.once(counts),
        **own,
        "total": rates.total(),
        "is_whole": rates.is_whole,
        "busiest": busiest(visit, cluster),
    }


def counts(cluster: Cluster) -> Data:
    """Brokers, topics and partitions."""
    topics = [each for each in cluster.topics.values() if not each.is_internal]
    return {
        "brokers": len(cluster.nodes),
        "controller": cluster.controller_id,
        "cluster_id": cluster.cluster_id,
        "topics": len(topics),
        "internal": len(cluster.topics) - len(topics),
        "partitions": sum(len(each.partitions) for each in cluster.topics.values()),
    }


def busiest(visit: Visit, cluster: Cluster) -> list[BusyTopic]:
    """The topics with most records a second, those with none left out."""
    rates = visit.cluster.rates
    found = [
        BusyTopic(name, now, rates.series(name))
        for name in rates.watched
        if name in cluster.topics
        and not cluster.topics[name].is_internal
        and (now := rates.now(name))
    ]
    return sorted(found, key=lambda each: -each.per_second)[:BUSIEST]


async def partitions_in_danger(visit: Visit) -> list[Attention]:
    """Partitions without a leader, and those that have lost replicas."""
    await visit.cluster.snapshot()
    return list(visit.cluster.once(troubles))


def troubles(cluster: Cluster) -> list[Attention]:
    """What is wrong with a cluster's partitions and its controller."""
    wanted = [found for topic in cluster.topics.values() for found in in_danger(topic)]
    if cluster.controller_id not in cluster.nodes:
        wanted.append(
            Attention("no controller: topics cannot be changed, leaders not elected", "/")
        )
    return wanted


def in_danger(topic: TopicInfo) -> list[Attention]:
    """What is wrong with the partitions of a topic."""
    path, wanted = f"/t/{topic.name}/partitions", []
    every = topic.partitions.values()
    leaderless = [p.partition for p in every if p.leader < 0]
    behind = [p for p in every if p.leader >= 0 and len(p.isr) < len(p.replicas)]
    if leaderless:
        which = ", ".join(map(str, leaderless[:BUSIEST]))
        text = f"{topic.name}: no leader for partition {which}; nobody can read or write it"
        wanted.append(Attention(text, path))
    if behind:
        lost = sum(len(p.replicas) - len(p.isr) for p in behind)
        text = f"{topic.name}: {lost} replica{'s' * (lost > 1)} out of sync"
        wanted.append(Attention(text, path, is_bad=any(len(p.isr) < 2 for p in behind)))
    return wanted
