"""The page of the flow of data: what writes a topic, how much comes in, and which groups read it.

Readers are the groups with committed offsets. A broker tells no client the names of its writers:
what it knows of a partition are the ids of idempotent producers (DescribeProducers, KIP-664), which
say how many there are, and since when they are silent. Names of clients with their bytes a second
are in the metrics of brokers that measure quotas, for all topics together.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.console.group_pages import looked, staleness
from ottla.console.metrics_samples import MetricSamples, labels_of
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.row_window import WINDOW, RowWindow
from ottla.errors import KafkaError
from ottla.structs import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.transactions import ProducerDescription
    from ottla.clients.metadata import TopicInfo
    from ottla.console.lag_collector import GroupLag
    from ottla.console.rates import Rates

    Producers = Mapping[TopicPartition, Sequence[ProducerDescription] | KafkaError]

MOST_PARTITIONS: Final = 500
"""Whose producers are asked for; of those behind them in a window they are not known."""
ACTIVE_MS: Final = 60_000
MOST_READERS: Final = 8
"""Groups of a topic that are shown."""
MOST_CLIENTS: Final = 50
CLIENT_RATE: Final = re.compile(r"kafka_server_(?P<way>produce|fetch)_?byte_?rate", re.IGNORECASE)


class ReaderOfTopic(NamedTuple):
    """A group that reads a topic, with its lag there."""

    group: str
    state: str
    lag: int


class FlowOfTopic(NamedTuple):
    """A topic between its writers and readers; None for a number that is not known."""

    topic: str
    producers: int | None
    """Idempotent producers that its partitions remember."""
    active: int | None
    """Those of them that have written within the last minute."""
    written_ms: int | None
    per_second: float | None
    rates: list[float]
    readers: Sequence[ReaderOfTopic]
    reader_count: int


class ClientRate(NamedTuple):
    """A client by the brokers' metrics, in bytes a second."""

    client_id: str
    user: str
    way: str
    """`produce` or `fetch`."""
    bytes_per_s: float


SORTS: Final[dict[str, Callable[[TopicInfo, Rates], tuple[object, ...]]]] = {
    "rate": lambda info, rates: (-(rates.now(info.name) or 0), info.name),
    "name": lambda info, rates: (info.name,),
}


async def flow(visit: Visit) -> Data:
    """A window of the topics with their writers and readers, the busiest first."""
    window, rates = RowWindow(visit, SORTS, "rate"), visit.cluster.rates
    known = await visit.cluster.snapshot()
    every = [each for each in known.topics.values() if not each.is_internal]
    found = [each for each in every if window.has(each.name)]
    found.sort(key=lambda info: SORTS[window.sort](info, rates))
    shown = found[window.first : window.first + WINDOW]
    rates.watch(each.name for each in shown)
    led = [TopicPartition(each.name, p) for each in shown for p in each.available]
    producers, not_known = await producers_of(visit, led[:MOST_PARTITIONS])
    collector = await looked(visit)
    readers = readers_of(collector.groups.values())
    now_ms = visit.cluster.runtime.clock.now_ms()
    rows = [flow_of(each, producers, readers.get(each.name, []), rates, now_ms) for each in shown]
    return {
        **window.data(len(found), len(every)),
        "rows": rows,
        "clients": client_rates(visit.cluster.part(MetricSamples)),
        "has_metrics": bool(visit.settings.metrics),
        "not_known": not_known,
        **staleness(collector),
    }


async def producers_of(visit: Visit, asked: Sequence[TopicPartition]) -> tuple[Producers, str]:
    """The producers that partitions remember; and the reason where some are not known, else empty.

    A broker before Kafka 2.8 has no such request.
    """
    try:
        found = await visit.cluster.transactions.describe_producers(asked, None) if asked else {}
    except KafkaError as error:
        return {}, error.message
    refused = (each.message for each in found.values() if isinstance(each, KafkaError))
    return found, next(refused, "")


def readers_of(groups: Iterable[GroupLag]) -> dict[str, list[ReaderOfTopic]]:
    """The groups by the topics that they read, those with most lag first."""
    found: dict[str, list[ReaderOfTopic]] = {}
    for group in groups:
        for topic, lag in group.lag.items():
            found.setdefault(topic, []).append(ReaderOfTopic(group.group, group.state, lag))
    for readers in found.values():
        readers.sort(key=lambda each: (-each.lag, each.group))
    return found


def flow_of(
    info: TopicInfo,
    producers: Producers,
    readers: Sequence[ReaderOfTopic],
    rates: Rates,
    now_ms: int,
) -> FlowOfTopic:
    """A line of the page."""
    answers = [producers.get(TopicPartition(info.name, each)) for each in info.available]
    known = [each for each in answers if each is not None and not isinstance(each, KafkaError)]
    newest: dict[int, int] = {}
    for each in (one for some in known for one in some):
        newest[each.producer_id] = max(newest.get(each.producer_id, -1), each.last_timestamp_ms)
    is_known = bool(answers) and len(known) == len(answers)
    active = sum(now_ms - at_ms < ACTIVE_MS for at_ms in newest.values())
    return FlowOfTopic(
        info.name,
        len(newest) if is_known else None,
        active if is_known else None,
        max(newest.values(), default=None) if is_known else None,
        rates.now(info.name),
        rates.series(info.name),
        readers[:MOST_READERS],
        len(readers),
    )


def client_rates(samples: MetricSamples) -> list[ClientRate]:
    """The clients in the brokers' metrics, those with most bytes first; all brokers together."""
    found: dict[tuple[str, str, str], float] = {}
    for sample in samples.samples.values():
        match = CLIENT_RATE.match(sample.series)
        labels = labels_of(sample.series) if match else {}
        client = labels.get("client_id", labels.get("clientId", ""))
        if match is not None and client and sample.value:
            key = (client, labels.get("user", ""), match["way"].lower())
            found[key] = found.get(key, 0.0) + sample.value
    lines = [ClientRate(*key, rate) for key, rate in found.items()]
    return sorted(lines, key=lambda each: (-each.bytes_per_s, each[:3]))[:MOST_CLIENTS]


FLOW_PAGES: Final = (
    ConsolePage("/flow", flow, "flow.html", "Flow", rail="Flow", refresh_s=10, home=True),
)
