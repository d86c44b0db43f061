"""The cluster as the console sees it: one snapshot of metadata for all browsers, and questions.

A page asks only for the rows that it shows. Each question is bounded in time by the client's
settings, and none creates a topic or a group.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.admin.configs import ConfigAdmin
from ottla.clients.admin.groups import GroupAdmin
from ottla.clients.admin.log_dirs import LogDirAdmin
from ottla.clients.admin.offsets import OffsetAdmin
from ottla.clients.admin.topics import ReassignmentAdmin, TopicAdmin
from ottla.clients.admin.transactions import TransactionAdmin
from ottla.clients.metadata import Cluster, Metadata, TopicInfo
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetSpec, list_offsets
from ottla.config.client_config import AdminConfig
from ottla.console.asked import AskingClient, CountingNetwork
from ottla.console.call_threads import CallThreads
from ottla.console.pacing import MOST_PAUSE_MS, SHARE, pause_after
from ottla.console.places import Places
from ottla.console.rates import Rates
from ottla.console.refusals import NotFound
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.structs import IsolationLevel, TopicPartition, replace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping

    from ottla.console.console_settings import ConsoleSettings
    from ottla.runtime import Runtime

P = TypeVar("P")

MAX_AGE_MS: Final = 30_000
NEAR: Final = 5
SEARCHES_AT_ONCE: Final = 2
SEARCHES_BEGUN, SEARCHES_OF_USER = 24, 8
"""The searches that are begun, and those that wait for their turn."""
STREAMS_AT_ONCE, STREAMS_OF_USER = 60, 20
EXPORTS_AT_ONCE, EXPORTS_OF_USER = 6, 2
CLIENT_SETTINGS: Final = {
    "client.id": "ottla-console",
    "request.timeout.ms": "10000",
    "default.api.timeout.ms": "10000",
}
"""A person waits no longer than this for a page; what is given on the command line wins."""


class SharedLimits:
    """What all clusters of one console share, so that its work stays bounded by them together."""

    def __init__(self) -> None:
        self.searches = asyncio.Semaphore(SEARCHES_AT_ONCE)
        self._begun = Places(
            SEARCHES_BEGUN, SEARCHES_OF_USER, "searches and statements run or wait"
        )
        self.streams = Places(STREAMS_AT_ONCE, STREAMS_OF_USER, "pages follow topics")
        self.redrives = asyncio.Semaphore(1)
        self.exports = Places(EXPORTS_AT_ONCE, EXPORTS_OF_USER, "exports run")
        self.calls = CallThreads()
        self.collecting: list[ConsoleCluster] = []
        """The clusters that look at the brokers by themselves, the oldest first."""

    @asynccontextmanager
    async def searching(self, user: str) -> AsyncIterator[None]:
        """Wait for the turn of a search or a statement; Refused where too many wait already."""
        with self._begun.taken(user):
            async with self.searches:
                yield


class ConsoleCluster:
    """Lives on one loop; close it there. All that it keeps was shown to one user of the brokers.

    `login` are the settings of the clients of that user, over those of the console; no other object
    of the console keeps them.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ConsoleSettings,
        login: Mapping[str, str] | None = None,
        limits: SharedLimits | None = None,
    ) -> None:
        self.network = CountingNetwork(runtime.network)
        self.runtime = replace(runtime, network=self.network)
        own = {**CLIENT_SETTINGS, **settings.client, **(login or {})}
        self.client_settings = own | {"bootstrap.servers": settings.bootstrap_servers}
        config = AdminConfig.parse(self.client_settings)
        self.client = AskingClient(self.runtime, config)
        self.admin = AdminClient(self.runtime, config, self.client)
        self.all_topics = AllTopics(self.client)
        self._worked_out: dict[Callable[[Cluster], Any], tuple[Cluster, Any]] = {}
        self.settings = settings
        """Those of the console; no login is in them."""
        self._is_of_user = login is not None
        self._is_kraft = False
        self._kraft_known: Cluster | None = None
        """The metadata with which it was found out."""
        self.user = (login or {}).get("sasl.username", "")
        """The name of the user that is logged in; empty where the console has no logins."""
        self.schema_registry = settings.schema_registry
        self.limits = limits or SharedLimits()
        self.is_closed = False
        self.rates = Rates(self.runtime, self.snapshot, self.ends, self.offsets_at, self.pause_ms)
        self._parts: dict[Callable[[ConsoleCluster], Any], Any] = {}
        self._collecting: list[asyncio.Task[None]] = []

    def start(self, collectors: Iterable[Callable[[ConsoleCluster], Any]] = ()) -> None:
        """Begin to watch how much comes in, and what collectors collect: the parts that `run`."""
        self.limits.collecting.append(self)
        collecting: list[Any] = [self.rates, *map(self.part, collectors)]
        spawn = self.runtime.scheduler.spawn
        self._collecting = [spawn(each.run(), type(each).__name__) for each in collecting]

    def pause_ms(self, took_ms: int, every_ms: int) -> int:
        """How long a collector rests; all clusters of the console share the 1 % of the brokers."""
        return pause_after(took_ms * max(1, len(self.limits.collecting)), every_ms)

    @property
    def reports(self) -> bool:
        """Whether it is the one cluster of its user that tells others of what it sees."""
        of_user = (each for each in self.limits.collecting if each.user == self.user)
        return next(of_user, self) is self

    def part(self, kind: Callable[[ConsoleCluster], P]) -> P:
        """The one object of a class that is made of a cluster, for all pages; made when needed."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)
        found: P = self._parts[kind]
        return found

    def once(self, make: Callable[[Cluster], P]) -> P:
        """The result of a function of the metadata, which is worked out once for each answer."""
        cluster = self.all_topics.cluster
        known = self._worked_out.get(make)
        if known is None or known[0] is not cluster:
            known = self._worked_out[make] = (cluster, make(cluster))
        found: P = known[1]
        return found

    @cached_property
    def topics(self) -> TopicAdmin:
        return TopicAdmin(self.admin)

    @cached_property
    def configs(self) -> ConfigAdmin:
        return ConfigAdmin(self.admin)

    @cached_property
    def groups(self) -> GroupAdmin:
        return GroupAdmin(self.admin)

    @cached_property
    def offsets(self) -> OffsetAdmin:
        return OffsetAdmin(self.admin)

    @cached_property
    def log_dirs(self) -> LogDirAdmin:
        return LogDirAdmin(self.admin)

    @cached_property
    def transactions(self) -> TransactionAdmin:
        return TransactionAdmin(self.admin)

    @cached_property
    def reassignments(self) -> ReassignmentAdmin:
        return ReassignmentAdmin(self.admin)

    async def snapshot(self) -> Cluster:
        """The brokers and all topics, at most 30 s old, or older where they take long to ask."""
        return await self.all_topics.fresh(MAX_AGE_MS)

    async def is_kraft(self) -> bool:
        """Whether the controllers are a quorum of KRaft (KIP-500), as brokers then answer for it.

        The metadata name any live broker as the controller there, as it passes requests on.
        """
        known = await self.snapshot()
        if known is not self._kraft_known:  # of metadata that came a moment ago a broker is there
            broker = await self.client.any_ready(self.admin.deadline())
            self._is_kraft = ApiKey.DESCRIBE_QUORUM in broker.versions
            self._kraft_known = known
        return self._is_kraft

    async def changed(self) -> None:
        """Ask for the metadata again, as something was changed here."""
        await self.all_topics.fresh(0)

    async def topic_if_any(self, name: str) -> TopicInfo | None:
        """A topic by its name, also one that was made a moment ago; None where there is none."""
        if name not in (await self.snapshot()).topics:
            await self.all_topics.fetch_one(name)
        return self.all_topics.cluster.topics.get(name)

    async def topic(self, name: str) -> TopicInfo:
        """A topic by its name; NotFound, with names that are alike, where there is none."""
        found = await self.topic_if_any(name)
        if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            hidden = ", or this user may not see it" if self._is_of_user else ""
            raise NotFound(f"There is no topic {name}{hidden}.", self._near(name))
        if found.error is not ErrorCode.NONE:
            raise KafkaError.of(found.error, f"topic {name}: {found.error.sentence}")
        return found

    async def ends(
        self,
        partitions: Iterable[TopicPartition],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        """The ends of logs: the offset of the next record, or of the first undecided one."""
        return await self.offsets_at(dict.fromkeys(partitions, OffsetSpec.LATEST), isolation)

    async def starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        """The first offsets that logs still have."""
        return await self.offsets_at(dict.fromkeys(partitions, OffsetSpec.EARLIEST))

    async def offsets_at(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        """The first offset at or after each timestamp, or of an `OffsetSpec`: one request a broker.

        A leader that has moved is asked once more, after the metadata.
        """
        found = await list_offsets(self.client, self.all_topics, timestamps, isolation)
        moved = {
            each: timestamps[each]
            for each, result in found.items()
            if isinstance(result, KafkaError) and result.error.refresh_metadata
        }
        if moved and await self._has_moved(moved):
            found |= await list_offsets(self.client, self.all_topics, moved, isolation)
        return found

    async def _has_moved(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether new metadata name other leaders, of those that have one."""
        before = self.all_topics.cluster
        now = await self.all_topics.fresh(MAX_AGE_MS // 10)
        return any(now.partition(each) != before.partition(each) for each in partitions)

    def _near(self, name: str) -> dict[str, str]:
        from difflib import get_close_matches  # only where there is a mistake

        near = get_close_matches(name, list(self.all_topics.cluster.topics), n=NEAR)
        return {f"/t/{each}/records": each for each in near}

    def close(self) -> None:
        """End its collectors, and close its connections; the login is forgotten."""
        self.is_closed = True
        if self._collecting:
            self.limits.collecting.remove(self)
        for each in self._collecting:
            each.cancel()
        self._collecting = []
        self._parts.clear()
        self.client_settings.clear()
        self.all_topics.close()
        self.admin.close()


class AllTopics(Metadata):
    """The metadata of all topics, which are asked for by `fresh` alone.

    Kafka's clients ask again as soon as a leader is missing; for 10,000 topics that is too often.
    """

    def __init__(self, client: AskingClient) -> None:
        super().__init__(client, allow_auto_topic_creation=False)
        self._client_of_all = client
        self._lock = asyncio.Lock()
        self._asked_ms: int | None = None
        self._took_ms = 0
        self._answers = 0
        """How often they were asked for, with or without success."""
        self._failure: KafkaError | None = None

    @property
    def age_ms(self) -> int | None:
        """How old the metadata are; None before the first answer."""
        if self._asked_ms is None:
            return None
        return self._client_of_all.runtime.clock.monotonic_ms() - self._asked_ms

    def request_update(self, *, is_urgent: bool = False) -> None:
        """Nothing: a wrong leader is noticed by the page that meets it."""

    async def fresh(self, max_age_ms: int) -> Cluster:
        """The metadata; asked for again where they are older than `max_age_ms`, and than 100 times
        the time that the last answer took (at most a minute), but for 0.

        Pages that wait for one question share its answer, or its error.
        """
        slow_ms = min(SHARE * self._took_ms, MOST_PAUSE_MS)
        allowed_ms = max(max_age_ms, slow_ms) if max_age_ms else 0
        age_ms = self.age_ms
        if age_ms is not None and age_ms < allowed_ms:
            return self.cluster
        before = self._answers
        async with self._lock:
            if not max_age_ms or self._answers == before:
                await self._ask()
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return self.cluster

    async def _ask(self) -> None:
        clock = self._client_of_all.runtime.clock
        began_ms = clock.monotonic_ms()
        try:
            self.cluster = await self.fetch(None)
        except KafkaError as error:
            self._failure = error.with_traceback(None)
        else:
            self._failure = None
            self._asked_ms = clock.monotonic_ms()
            self._took_ms = self._asked_ms - began_ms
            self._client_of_all.update_nodes(self.cluster.nodes)
        finally:
            self._answers += 1

    async def fetch_one(self, name: str) -> None:
        """Add a topic that may have been made since."""
        found = (await self.fetch([name])).topics.get(name)
        if found is not None and found.error is ErrorCode.NONE:
            self.cluster = replace(self.cluster, topics={**self.cluster.topics, name: found})
