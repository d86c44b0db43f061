"""The list of topics: windows of 100 rows, filtered and sorted, with facts of the rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.refusals import NotFound
from ottla.console.row_window import LONGEST_FILTER, WINDOW, RowWindow
from ottla.console.topic_facts import topic_facts
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.clients.metadata import TopicInfo
    from ottla.console.rates import Rates


class TopicLine(NamedTuple):
    """A line of the list; None for a fact that is not known."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    records: int | None
    bytes: int | None
    per_second: float | None
    rates: list[float]
    policy: str
    retention: str
    trouble: str
    """The partitions without a leader, or without all replicas in sync, in words; else empty."""


def trouble_of(info: TopicInfo) -> str:
    """A sentence about partitions that are in danger; empty where none is."""
    leaderless = len(info.partitions) - len(info.available)
    if leaderless:
        return f"{leaderless} without a leader"
    behind = sum(len(p.isr) < len(p.replicas) for p in info.partitions.values())
    return f"{behind} under-replicated" if behind else ""


def replicas_of(info: TopicInfo) -> int:
    """The replication factor: that of the partition which has fewest."""
    return min((len(p.replicas) for p in info.partitions.values()), default=0)


class TopicList:
    """The page `/topics`, and where the search box at the top leads."""

    def __init__(self) -> None:
        self._sorts: dict[str, Callable[[TopicInfo, Rates], tuple[Any, ...]]] = {
            "name": lambda info, rates: (info.name,),
            "partitions": lambda info, rates: (-len(info.partitions), info.name),
            "replicas": lambda info, rates: (-replicas_of(info), info.name),
            "rate": lambda info, rates: (-(rates.now(info.name) or 0), info.name),
        }

    async def load(self, visit: Visit) -> Data:
        """The rows from `from` on, of topics whose names have `q` in them."""
        window = RowWindow(visit, self._sorts, "name")
        with_internal = visit.query.get("internal") == "1"
        cluster = await visit.cluster.snapshot()
        every = [each for each in cluster.topics.values() if with_internal or not each.is_internal]
        found = [each for each in every if window.has(each.name)]
        key, rates = self._sorts[window.sort], visit.cluster.rates
        found.sort(key=lambda info: key(info, rates))
        rows = await self._rows(visit, found[window.first : window.first + WINDOW])
        return {
            **window.data(len(found), len(every)),
            "rows": rows,
            "internal": with_internal,
            "hidden": len(cluster.topics) - len(every),
        }

    async def _rows(self, visit: Visit, infos: Iterable[TopicInfo]) -> list[TopicLine]:
        shown = list(infos)
        rates = visit.cluster.rates
        rates.watch(each.name for each in shown)
        facts = await topic_facts(visit.cluster, shown)
        return [
            TopicLine(
                info.name,
                info.is_internal,
                len(info.partitions),
                replicas_of(info),
                facts[info.name].records,
                facts[info.name].bytes,
                rates.now(info.name),
                rates.series(info.name),
                facts[info.name].policy,
                facts[info.name].retention,
                trouble_of(info),
            )
            for info in shown
        ]


async def find(visit: Visit) -> Data:
    """The topics whose names have the words of the search box in them."""
    wanted = visit.query.get("q", "").strip()[:LONGEST_FILTER]
    cluster = await visit.cluster.snapshot()
    names = sorted(each for each in cluster.topics if wanted.lower() in each.lower())
    if not names:
        near = (await _near(visit, wanted)) if wanted else {}
        raise NotFound(f"There is no topic with {wanted} in its name.", near)
    return {"q": wanted, "names": names[:WINDOW], "found": len(names)}


async def _near(visit: Visit, name: str) -> dict[str, str]:
    try:
        await visit.cluster.topic(name)
    except NotFound as error:
        return error.near
    return {}


TOPIC_PAGES: Final = (
    ConsolePage(
        "/topics",
        TopicList().load,
        "topics.html",
        "Topics",
        rail="Topics",
        command="ottla topics --list",
        refresh_s=5,
        home=True,
        table="rows",
    ),
    ConsolePage("/find", find, "find.html", "Found", command="ottla topics --list"),
)
