"""`ottla mirror`: the engine that runs the flows of mm2.properties in one process.

Each flow has a keeper, which looks after topics, groups and heartbeats by their intervals, and its
copiers, one for each task. Each of them is a loop in a thread of its own that outlives errors: it
says what happened, closes its clients, and begins again from what is written at the target.

Several processes with one file share a flow: a copier works in the process that owns its task, and
groups and heartbeats are looked after by the one that owns the keeper's work (`flow_group`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla.clients.admin.admin import Admin
from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.mirror_records import Heartbeat
from ottla.clients.producer.producer import Producer
from ottla.config.metrics_config import MetricsEndPoint, package_missing
from ottla.errors import ConfigError, KafkaError
from ottla.metrics.metrics_registry import Beans, MetricsRegistry
from ottla.mirror.checkpoint import GroupSync
from ottla.mirror.copied_offsets import CopiedTo, read_offsets
from ottla.mirror.flow import Flow, MirrorCluster, MirrorPlan
from ottla.mirror.flow_group import KEEPER, FlowGroup, work_of
from ottla.mirror.source_task import Assigned, Gap, SourceTask
from ottla.mirror.topic_sync import MirroredTopics, TopicSync, refused_topics
from ottla.runtime.clock import Clock
from ottla.runtime.io_thread import Condition, Event, IoThread, Lock, run_in_thread
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.metrics.metrics_pages import MetricsServer

logger = logging.getLogger(__name__)

TURN_S: Final = 0.2
LOOK_AGAIN_MS: Final = 1_000
"""After which groups are looked at again, at first; each time later, until it is the interval."""
SYNC_MS: Final = 5_000
"""How old the newest pair of offsets may be, so that groups at the end lose little by a move."""
BACKOFF_MS: Final = 500
LONGEST_BACKOFF_MS: Final = 30_000
CLOSE_S: Final = 10.0
END_S: Final = 25.0
"""How long a mirror takes to end: supervisors kill what takes 30 s."""


class Mirror(ClosedOnExit):
    """All flows of a plan, from `start` to `close`."""

    metrics: MirrorMetrics | None = None
    """Set while the mirror runs, where the plan says metrics.listener."""

    def __init__(self, plan: MirrorPlan, clock: Clock) -> None:
        self.plan = plan
        self._is_over = Event()
        self.runners = [FlowRunner(flow, plan, Beans(clock), self._is_over) for flow in plan.flows]
        self._running: list[Future[None]] = []

    def start(self) -> None:
        """Begin to run all flows; returns at once."""
        check_plan(self.plan)
        if self.plan.metrics_listener is not None:
            self.metrics = MirrorMetrics(self.plan.metrics_listener, self.runners)
        self._running = [
            run_in_thread(loop, f"ottla-mirror-{runner.flow.name}")
            for runner in self.runners
            for loop in runner.loops()
        ]

    def statuses(self) -> list[FlowStatus]:
        """Where the flows that copy stand."""
        return [each.status() for each in self.runners if each.flow.config.enabled]

    def gaps(self) -> list[tuple[str, Gap]]:
        """Records that were gone before they were copied, with the names of the flows."""
        return [(each.flow.name, gap) for each in self.runners for gap in list(each.gaps)]

    def notices(self) -> list[tuple[str, str]]:
        """Notices for the operator, each once, with the names of the flows."""
        return [(each.flow.name, text) for each in self.runners for text in list(each.notices)]

    def check(self) -> None:
        """Raise the error of a flow that cannot run at all."""
        for future in self._running:
            if future.done():
                future.result()

    def close(self) -> None:
        """Have all flows write how far they are, and end. Closing twice does nothing.

        A loop that waits for a cluster which hangs is left behind: it ends with its call, or with
        the process, and what it has not written is copied again.
        """
        self._is_over.set()
        _, hung = wait(self._running, END_S)
        if hung:
            logger.warning("%d loops still wait for a cluster, and are left", len(hung))
        if self.metrics is not None:
            self.metrics.close()
            self.metrics = None


class FlowStatus(NamedTuple):
    """Where a flow stands. `lag` is None before it is known; `error` is the last one, if it lasts.

    `lost` counts records that were gone before they were copied, `left_out` those that the target
    refused; `stopped` has the partitions that stand still before one, with offset and reason.
    """

    name: str
    records: int
    bytes: int
    topics: int
    groups: int
    lag: int | None
    lost: int
    error: str | None
    left_out: int = 0
    stopped: Sequence[str] = ()

    def line(self) -> str:
        """`lisbon->porto  12,345 records  lag 0  topics 3  groups 2`."""
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        text = f"{self.name}  {self.records:,} records  lag {lag}  "
        text += f"topics {self.topics}  groups {self.groups}"
        if self.lost:
            text += f"  LOST {self.lost:,}"
        if self.left_out:
            text += f"  LEFT OUT {self.left_out:,}"
        if self.stopped:
            text += f"  STOPPED {len(self.stopped):,}: {self.stopped[0]}"
        return f"{text}  {self.error}" if self.error else text


class Turn:
    """Says when something that is done every so often is due; at first at once.

    With `is_repeated` false it is due only then.
    """

    def __init__(
        self, clock: Clock, interval_ms: int, *, is_enabled: bool = True, is_repeated: bool = True
    ) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._is_enabled = is_enabled
        self._is_repeated = is_repeated
        self._next_ms: int | None = None
        self.reset()

    def reset(self) -> None:
        """It is due at once, if it is enabled at all."""
        self._next_ms = 0 if self._is_enabled else None

    def hasten(self, delay_ms: int) -> None:
        """It is due after this time at the latest, if it is enabled and repeated."""
        if self._next_ms is not None:
            self._next_ms = min(self._next_ms, self._clock.monotonic_ms() + delay_ms)

    def is_due(self) -> bool:
        """Whether it is; the next time is an interval from now."""
        now_ms = self._clock.monotonic_ms()
        if self._next_ms is None or now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + self._interval_ms if self._is_repeated else None
        return True


class Keeper:
    """Keeps the topics, groups and heartbeats of a flow; opened, run and closed by one thread."""

    def __init__(self, flow: Flow, plan: MirrorPlan, beans: Beans) -> None:
        config, clock = flow.config, beans.clock
        self.flow = flow
        self.topics = MirroredTopics({}, {})
        self.group_count = 0
        self._plan = plan
        self._beans = beans
        self._clock = clock
        self._source = Admin(flow.source.settings("admin"))
        try:
            self._target = Admin(flow.target.settings("admin"))
        except BaseException:
            self._source.close()
            raise
        self._sync = TopicSync(flow, self._source, self._target)
        self._groups: GroupSync | None = None
        self._heart: Producer | None = None
        self._refused: dict[str, str] = {}
        self._look_again_ms = LOOK_AGAIN_MS
        self.circles: frozenset[str] = frozenset()
        """The topics that are left out, as their names say that they came by this way."""
        copies = config.enabled
        emits = copies and config.emit_checkpoints_enabled and config.emit_offset_syncs_enabled
        syncs = emits and config.sync_group_offsets_enabled

        def every(seconds: int, is_enabled: bool, is_repeated: bool = True) -> Turn:
            return Turn(clock, seconds * 1000, is_enabled=is_enabled, is_repeated=is_repeated)

        self._topics_turn = every(
            config.refresh_topics_interval_seconds, copies, config.refresh_topics_enabled
        )
        self._configs_turn = every(config.sync_topic_configs_interval_seconds, copies)
        self._acls_turn = every(config.sync_topic_acls_interval_seconds, copies)
        self._groups_turn = every(
            config.refresh_groups_interval_seconds, emits, config.refresh_groups_enabled
        )
        self._checkpoints_turn = every(config.emit_checkpoints_interval_seconds, emits)
        self._offsets_turn = every(config.sync_group_offsets_interval_seconds, syncs)
        beats = config.emit_heartbeats_enabled
        self._heartbeats_turn = every(config.emit_heartbeats_interval_seconds, beats)

    @property
    def notices(self) -> list[str]:
        """Notices for the operator, each once."""
        return self._sync.notices

    def open(self) -> None:
        """Check the clusters and make the topics that the flow itself needs."""
        self._sync.check_clusters()
        self.make_own_topics()

    def make_own_topics(self) -> None:
        """Make those of them that are missing."""
        source = self.flow.sync_cluster is self.flow.source
        self._sync.create_internal_topics(self._source if source else self._target)

    def turn(self, *, is_owner: bool = True) -> MirroredTopics | None:
        """Do what is due; the topics if these were looked at.

        Topics are looked after by every process of the flow: what one makes the others find.
        """
        found = None
        if self._topics_turn.is_due():
            found = self._refresh_topics()
        if is_owner:
            self._turn_of_owner()
        elif self._groups is not None:
            self._drop_groups()
        return found

    def _turn_of_owner(self) -> None:
        if self._groups_turn.is_due():
            self._refresh_groups()
        if self._groups is not None and self._checkpoints_turn.is_due():
            self._emit(self._groups)
        if self._groups is not None and self._offsets_turn.is_due():
            self._groups.sync_offsets()
        if self._heartbeats_turn.is_due():
            self._beat()

    def _emit(self, groups: GroupSync) -> None:
        """Emit checkpoints; at first, and for a new group, soon again: it may have to move."""
        was_waiting = groups.is_waiting
        if groups.emit(self.topics.sources):
            self._offsets_turn.hasten(self._look_again_ms)
        self.group_count = groups.translated_count
        if groups.is_waiting and not was_waiting:
            self._look_again_ms = LOOK_AGAIN_MS
        for each in (self._groups_turn, self._checkpoints_turn):
            each.hasten(self._look_again_ms)
        self._look_again_ms *= 2

    def _drop_groups(self) -> None:
        """Another process emits checkpoints now: those that were read here are old."""
        if self._groups is not None:
            self._groups.close()
            self._groups, self.group_count = None, 0
        for each in (self._groups_turn, self._checkpoints_turn, self._offsets_turn):
            each.reset()

    def close(self) -> None:
        if self._groups is not None:
            self._groups.close()
        if self._heart is not None:
            self._heart.close(0)
        self._source.close()
        self._target.close()

    def _refresh_topics(self) -> MirroredTopics:
        listed = self._source.list_topics()
        self.circles = frozenset(self.flow.named_circles(listed))
        refused = refused_topics(self.flow, self._plan, listed)
        for topic in refused.keys() - self._refused.keys():
            logger.error(
                "%s: %s is left out: it would go round by %s", self.flow.name, topic, refused[topic]
            )
        self._refused = refused
        topics = self._sync.topics(refused)
        changes = self._sync.changes(
            topics, configs=self._configs_turn.is_due(), acls=self._acls_turn.is_due()
        )
        self._sync.apply(changes)
        self.topics = self._sync.topics(refused) if changes.create or changes.grow else topics
        return self.topics

    def _refresh_groups(self) -> None:
        if self._groups is None:
            self._groups = GroupSync(self.flow, self._source, self._target, self._beans)
        self._groups.refresh_groups()

    def _beat(self) -> None:
        if self._heart is None:
            self._heart = Producer(
                {"max.block.ms": "5000", **self.flow.target.settings("producer")}
            )
        beat = Heartbeat(self.flow.source.alias, self.flow.target.alias, self._clock.now_ms())
        topic = self.flow.policy.heartbeats_topic()
        self._heart.send(topic, beat.value(), key=beat.key(), partition=0)


class FlowRunner:
    """One flow: the loops of its keeper and its copiers, and what they tell each other.

    `owned` is what of its work is this process's: all, until a loop joins the flow's group.
    """

    def __init__(self, flow: Flow, plan: MirrorPlan, beans: Beans, is_over: Event) -> None:
        self.flow = flow
        self.gaps: list[Gap] = []
        self.notices: list[str] = []
        """Notices for the operator, each once: topics left out, partitions that stand still."""
        self.beans = beans
        """The measures of its loops."""
        self.clock = beans.clock
        self._plan = plan
        self._is_over = is_over
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._copying: set[int] = set()
        self.owned = frozenset(each.task for each in work_of(flow))
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._errors: dict[str, str] = {}
        self._topic_count = self._group_count = 0
        self.may_lack_topic = False
        """Whether the keeper is to look for the flow's own topics: one may have been deleted."""
        self._lags: dict[int, int | None] = {}
        self._circles: frozenset[str] = frozenset()
        self._stopped: dict[int, Mapping[TopicPartition, str]] = {}
        self._records = self._bytes = self._lost = self._left_out = 0

    def loops(self) -> list[Callable[[], None]]:
        """The loops to run, each in a thread of its own."""
        if not self.flow.config.enabled:
            return [self.keep]
        self.owned = frozenset()
        copiers = range(self.flow.config.tasks_max)
        return [self.keep, self.share_work, *(lambda n=number: self.copy(n) for number in copiers)]

    def status(self) -> FlowStatus:
        """Where it stands now; from any thread."""
        with self._lock:
            known = [lag for lag in self._lags.values() if lag is not None]
            complete = self._lags and len(known) == len(self._lags)
            return FlowStatus(
                self.flow.name,
                self._records,
                self._bytes,
                self._topic_count,
                self._group_count,
                sum(known) if complete else None,
                self._lost,
                next(iter(self._errors.values()), None),
                self._left_out,
                [text for each in self._stopped.values() for text in each.values()],
            )

    # The keeper

    def keep(self) -> None:
        """The keeper's loop."""
        self._again_and_again("keeper", self._keep)

    def _keep(self) -> None:
        with closing(Keeper(self.flow, self._plan, self.beans)) as keeper:
            keeper.open()
            while not self._is_over.wait(TURN_S):
                if self.may_lack_topic:
                    self.may_lack_topic = False
                    keeper.make_own_topics()
                topics = keeper.turn(is_owner=KEEPER in self.owned)
                if topics is not None:
                    self.on_topics(topics)
                self.on_circles(keeper.circles)
                self.on_notices(keeper.notices)
                with self._lock:
                    self._topic_count = len(keeper.topics.sources)
                    self._group_count = keeper.group_count
                self.on_success("keeper")

    def on_circles(self, circles: frozenset[str]) -> None:
        """Tell of topics that are left out for their names, once."""
        new = circles - self._circles
        if new:
            self._circles |= new
            names = ", ".join(sorted(new))
            text = f"left out, as their names say that they came by this way: {names}"
            logger.warning("%s: %s", self.flow.name, text)
            self.notices.append(text)

    def on_notices(self, texts: Iterable[str]) -> None:
        """Report the keeper's findings to the operator, each once."""
        self.notices += [text for text in texts if text not in self.notices]

    def on_topics(self, topics: MirroredTopics) -> None:
        """The topics as they are now; the partitions to copy follow from them."""
        found = {}
        for name, description in topics.sources.items():
            remote = self.flow.remote(name)
            target = topics.targets.get(remote)
            if target is None:
                continue
            where = Assigned(remote, str(description.topic_id), str(target.topic_id))
            for index in range(min(len(description.partitions), len(target.partitions))):
                found[TopicPartition(name, index)] = where
        with self._lock:
            self._assigned = found

    def _still_true(
        self, partition: TopicPartition, copied: CopiedTo | None, source_id: str, target_id: str
    ) -> int | None:
        """How far it was copied, unless one of both topics was made again since."""
        if copied is None:
            return None
        if copied.source_id and copied.source_id != source_id:
            why = "the source's topic was made again; it is copied from its beginning"
            self._note_gap(Gap(partition, copied.offset + 1, None, why))
            return None
        if copied.target_id and copied.target_id != target_id:
            logger.warning(
                "%s: the copy of %s was made again; all is copied again", self.flow.name, partition
            )
            return None
        return copied.offset

    def _note_gap(self, gap: Gap) -> None:
        with self._lock:
            is_new = (gap.partition, gap.first) not in {(g.partition, g.first) for g in self.gaps}
            if is_new:
                self.gaps.append(gap)
        if is_new:
            logger.error("%s: %s", self.flow.name, gap)

    # The copiers

    def copy(self, number: int) -> None:
        """The loop of one copier."""
        self._again_and_again(f"task {number}", lambda: self._copy(number))

    def _copy(self, number: int) -> None:
        while not self._is_over.is_set():
            if self._begin(number):
                try:
                    self._copy_while_owned(number)
                finally:
                    self._end(number)
            else:
                self._is_over.wait(TURN_S)

    def _copy_while_owned(self, number: int) -> None:
        copier = FlowTask(self, number)
        try:
            while not self._is_over.is_set() and number in self.owned:
                if not copier.turn():
                    self._is_over.wait(TURN_S)
            copier.finish()
        finally:
            copier.close(CLOSE_S if self._is_over.is_set() else 0)

    def _begin(self, number: int) -> bool:
        """Whether the task is this process's; then it is not given up before `_end`."""
        with self._lock:
            if number in self.owned:
                self._copying.add(number)
            return number in self._copying

    def _end(self, number: int) -> None:
        with self._lock:
            self._copying.discard(number)
            if not self._is_over.is_set():
                self._lags.pop(number, None)
                self._stopped.pop(number, None)
            self._idle.notify_all()

    def share(self, number: int) -> dict[TopicPartition, Assigned]:
        """The partitions of one task, whichever of them this process knows by now."""
        count = self.flow.config.tasks_max
        with self._lock:
            return {p: each for p, each in self._assigned.items() if task_of(p, count) == number}

    # The group of the flow's processes

    def share_work(self) -> None:
        """The loop that joins the group, and owns what it is given there."""
        self._again_and_again("group", self._share_work)

    def _share_work(self) -> None:
        group = FlowGroup(self.flow)
        try:
            while not self._is_over.is_set():
                if group.needs_join:
                    self.give_up()
                    self.owned = group.join(self._is_over)
                    logger.info("%s: tasks %s are here", self.flow.name, sorted(self.owned))
                group.turn()
                self.on_success("group")
                self._is_over.wait(TURN_S)
        finally:
            self.give_up()
            group.close()

    def give_up(self) -> None:
        """Own nothing, and wait until the copiers have written how far they are."""
        with self._lock:
            self.owned = frozenset()
            self._idle.wait_for(lambda: not self._copying, 2 * CLOSE_S)

    def fresh(self, wanted: Mapping[TopicPartition, Assigned]) -> dict[TopicPartition, Assigned]:
        """The partitions with how far any process has copied them by now."""
        offsets = read_offsets(
            self.flow.target, self.flow.offsets_topic, self.flow.source.alias, self.clock
        )
        return {
            partition: each._replace(
                copied=self._still_true(
                    partition, offsets.get(partition), each.source_id, each.target_id
                )
            )
            for partition, each in wanted.items()
        }

    def note(
        self,
        number: int,
        progress: CopyCounts,
        lag: int | None,
        gaps: Sequence[Gap],
        stopped: Mapping[TopicPartition, str],
    ) -> None:
        """A task has come so much further, lags so far, and has partitions that stand still."""
        with self._lock:
            known = self._stopped.get(number, {})
            self.notices += [f"STOPPED {stopped[p]}" for p in stopped if p not in known]
            self._stopped[number] = dict(stopped)
            self._left_out += progress.left_out
            self._records += progress.records
            self._bytes += progress.bytes
            self._lost += progress.lost
            self.gaps += gaps
            self._lags[number] = lag

    # Errors

    def _again_and_again(self, who: str, work: Callable[[], None]) -> None:
        """Run `work` until the mirror is over; after an error once more, later and later."""
        delay_ms = BACKOFF_MS
        while not self._is_over.is_set():
            begun_ms = self.clock.monotonic_ms()
            try:
                work()
            except ConfigError:
                raise
            except (KafkaError, RuntimeError, OSError, ValueError) as error:
                if self._is_over.is_set():
                    return
                logger.warning("%s, %s: %s", self.flow.name, who, error)
                self.may_lack_topic |= isinstance(error, KafkaError) and error.retriable
                with self._lock:
                    self._errors[who] = str(error)
                if self.clock.monotonic_ms() - begun_ms > LONGEST_BACKOFF_MS:
                    delay_ms = BACKOFF_MS
                self._is_over.wait(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, LONGEST_BACKOFF_MS)

    def on_success(self, who: str) -> None:
        """A loop works: its last error does not last."""
        with self._lock:
            self._errors.pop(who, None)


def task_of(partition: TopicPartition, count: int) -> int:
    """The task of `count` that copies a partition, however many others a process knows of."""
    return (crc32(partition.topic.encode()) + partition.partition) % count


class CopyCounts(NamedTuple):
    """The progress of a task: records and bytes that it copied, records that were lost."""

    records: int = 0
    bytes: int = 0
    lost: int = 0
    left_out: int = 0

    def since(self, before: CopyCounts) -> CopyCounts:
        return CopyCounts(*(now - then for now, then in zip(self, before, strict=True)))


class FlowTask:
    """One task of a flow, turn by turn; for a single thread, of `ottla mirror` or of a worker."""

    def __init__(self, runner: FlowRunner, number: int) -> None:
        self._runner = runner
        self._number = number
        self._task = SourceTask(runner.flow, number, runner.beans)
        self._share: dict[TopicPartition, Assigned] = {}
        self._told = CopyCounts()
        self._told_gaps = 0
        self._is_finished = False
        self._flush = Turn(runner.clock, runner.flow.config.offset_flush_interval_ms)
        self._sync = Turn(runner.clock, SYNC_MS)

    def turn(self) -> bool:
        """Copy what has come; False if nothing is assigned."""
        wanted = self._runner.share(self._number)
        if wanted != self._share:
            self._task.assign(self._runner.fresh(wanted))
            self._share = wanted
        if self._share:
            self._task.poll(int(TURN_S * 1000))
        if self._sync.is_due():
            self._task.syncs.on_commit()  # poll sends them
        if self._flush.is_due():
            self._task.commit()
            self._runner.on_success(f"task {self._number}")
        self._runner.may_lack_topic |= self._task.take_lack()
        self._tell(self._task.lag())
        return bool(self._share)

    def finish(self) -> None:
        """Write how far it is."""
        self._task.finish(CLOSE_S)
        self._is_finished = True
        self._tell(self._task.lag())

    def close(self, timeout_s: float) -> None:
        """Close the clients; what is not acknowledged within the time is copied again later."""
        if not self._is_finished:
            self._tell(None)  # how far it lags is not known until another one has begun
        self._task.close(timeout_s)

    def _tell(self, lag: int | None) -> None:
        task = self._task
        copied = task.copied_records.total, task.copied_bytes
        now = CopyCounts(*copied, task.lost_records, task.refused.left_out)
        gaps, stopped = task.gaps[self._told_gaps :], task.refused.stopped
        self._runner.note(self._number, now.since(self._told), lag, gaps, stopped)
        self._told, self._told_gaps = now, len(task.gaps)


class MirrorMetrics:
    """The metrics of flows, served over HTTP from a thread of its own."""

    def __init__(self, end_point: MetricsEndPoint, runners: Sequence[FlowRunner]) -> None:
        """ConfigError where it cannot listen there."""
        self._runners = runners
        self._io = IoThread("mirror-metrics")
        self._server = self._io.begin_with(self._begin(end_point))

    @property
    def url(self) -> str:
        """Where it listens, with the port that it got."""
        return str(self._server.end_point)

    def close(self) -> None:
        self._io.run(self._server.close())
        self._io.close()

    async def _begin(self, end_point: MetricsEndPoint) -> MetricsServer:
        try:
            from ottla.metrics.metrics_pages import MetricsServer
        except ImportError as error:
            raise package_missing(error) from None

        registry = MetricsRegistry(self._io.runtime)
        registry.show(lambda: [runner.beans for runner in self._runners])
        server = MetricsServer(registry, end_point)
        await server.start()
        return server


def check_plan(plan: MirrorPlan) -> None:
    """ConfigError where a flow leads back to its own cluster, or no flow is enabled."""
    if not plan.enabled():
        names = ", ".join(flow.name for flow in plan.flows)
        raise ConfigError(f"no flow is enabled: set one of {names} with .enabled = true")
    circles = _circles(plan.enabled())
    if circles:
        raise ConfigError("; ".join(circles))


def _circles(flows: Sequence[Flow]) -> Iterable[str]:
    """Flows whose ends have the same brokers."""
    return [
        f"{flow.name}: both clusters have the same bootstrap.servers, {_servers(flow.source)}"
        for flow in flows
        if _servers(flow.source) == _servers(flow.target)
    ]


def _servers(cluster: MirrorCluster) -> str:
    return ",".join(sorted(cluster.clients["admin"]["bootstrap.servers"].split(",")))
