"""The metrics of a worker, under Kafka's names: the list of them, and their sources.

    connect-worker-metrics            the worker, and for each connector its tasks by state
    connect-worker-rebalance-metrics  the worker as a member of its group
    connector-metrics                 a connector that runs here
    connector-task-metrics            a task: its state, its batches, its offsets
    source-task-metrics, sink-task-metrics, task-error-metrics

and the MBeans of connectors' own (`context.beans`).

They are read when somebody asks. Tasks count once a batch (`TaskMeasures`), also when nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from ottla.connect import exactly_once, sink_task, source_task
from ottla.connect.distributed_herder import DistributedHerder
from ottla.connect.exactly_once import ExactlyOnceSourceTask
from ottla.connect.herder import Herder
from ottla.connect.plugin_thread import State
from ottla.connect.sink_task import WorkerSinkTask
from ottla.connect.source_task import WorkerSourceTask
from ottla.connect.worker import Startups, Worker
from ottla.connect.worker_task import (
    BATCH_SIZE,
    COMMIT_SUCCESS,
    COMMIT_TIME,
    TaskMeasures,
    WorkerTask,
)
from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Number,
    Series,
    Tags,
)

DOMAIN: Final = "kafka.connect"
COUNTED_STATES: Final = (
    State.RUNNING,
    State.PAUSED,
    State.FAILED,
    State.UNASSIGNED,
    State.RESTARTING,
)
"""Those that a task of this worker can be in; a DESTROYED one is not there any longer."""

Values = Mapping[str, Number | str]


def worker_registry(herder: Herder) -> MetricsRegistry:
    """All metrics of one worker; its owner begins and ends it."""
    worker = herder.worker
    registry = MetricsRegistry(worker.runtime)
    _register(registry, "connect-worker-metrics", "What a worker runs.", lambda: _of_worker(herder))
    if isinstance(herder, DistributedHerder):
        _register(
            registry,
            "connect-worker-rebalance-metrics",
            "A worker in its group.",
            lambda: ((NO_TAGS, of_rebalances(herder)),),
        )
    _register(
        registry,
        "connector-metrics",
        "A connector that this worker runs.",
        lambda: _of_connectors(herder),
    )
    for kind, doc, read in (
        ("connector-task-metrics", "A task that this worker runs.", of_task),
        ("source-task-metrics", "What a task brings from a source.", of_source),
        ("sink-task-metrics", "What a task brings to a sink.", of_sink),
        ("task-error-metrics", "What became of records that failed.", of_errors),
    ):
        _register(registry, kind, doc, partial(_of_tasks, worker, read))
    registry.show(lambda: [task.beans for _, task in sorted(worker.tasks.items())])
    registry.on_tick(lambda: _tick(worker))
    return registry


def _register(registry: MetricsRegistry, kind: str, doc: str, read: Callable[[], Series]) -> None:
    name = FamilyName(DOMAIN, kind)
    registry.register(Family(name, Kind.KAFKA, doc, read, unbounded=True))


def _tick(worker: Worker) -> None:
    for task in worker.tasks.values():
        if isinstance(task, WorkerSourceTask):
            task.note_arrivals()
        task.measures.tick()


def _of_worker(herder: Herder) -> Iterator[tuple[Tags, Values]]:
    worker = herder.worker
    yield (
        NO_TAGS,
        {
            "connector-count": len(worker.connectors),
            "task-count": len(worker.tasks),
            **of_starts("connector", worker.connector_starts, worker),
            **of_starts("task", worker.task_starts, worker),
        },
    )
    for name in sorted(herder.state.connectors):
        tasks = [
            status.state
            for task_id in herder.state.task_ids(name)
            if (status := herder.statuses.tasks.get(task_id)) is not None
            and status.worker_id == herder.worker_id
        ]
        if tasks or name in worker.connectors:
            counts = {f"connector-{s.lower()}-task-count": tasks.count(s) for s in COUNTED_STATES}
            yield (("connector", name),), {"connector-total-task-count": len(tasks), **counts}


def of_starts(what: str, starts: Startups, worker: Worker) -> Values:
    """How starts of connectors, or of tasks, ended; shares are of the last 30 to 60 seconds."""
    share = starts.successful.average(worker.runtime.clock.monotonic_ms())
    return {
        f"{what}-startup-attempts-total": starts.attempts,
        f"{what}-startup-success-total": starts.successes,
        f"{what}-startup-success-percentage": share,
        f"{what}-startup-failure-total": starts.failures,
        f"{what}-startup-failure-percentage": 1 - share,
    }


def of_rebalances(herder: DistributedHerder) -> Values:
    """A worker's view of its group; times are those from joining to running its work."""
    group, rebalances = herder.group, herder.group.rebalances
    now_ms = herder.worker.runtime.clock.monotonic_ms()
    found: dict[str, Number | str] = {
        "leader-name": group.assignment.leader_url,
        "connect-protocol": group.protocol,
        "epoch": group.member.generation,
        "completed-rebalances-total": rebalances.completed,
        "rebalancing": int(rebalances.is_under_way),
        "rebalance-max-time-ms": rebalances.times.maximum(now_ms),
        "rebalance-avg-time-ms": rebalances.times.average(now_ms),
    }
    if rebalances.last_ms is not None:
        found["time-since-last-rebalance-ms"] = now_ms - rebalances.last_ms
    return found


def _of_connectors(herder: Herder) -> Iterator[tuple[Tags, Values]]:
    for name, running in sorted(herder.worker.connectors.items()):
        word = running.properties.get("connector.class", "")
        status = herder.statuses.connectors.get(name)
        state = State.UNASSIGNED if status is None else status.state
        found: dict[str, Number | str] = {
            "connector-class": word,
            "connector-type": herder.kind_of(running.properties),
            "status": state.lower(),
        }
        if status is not None and status.version is not None:
            found["connector-version"] = status.version
        yield (("connector", name),), found


def _of_tasks(
    worker: Worker, read: Callable[[WorkerTask], Values | None]
) -> Iterator[tuple[Tags, Values]]:
    for task_id, task in sorted(worker.tasks.items()):
        found = read(task)
        if found is not None:
            yield (("connector", task_id.connector), ("task", str(task_id.task))), found


def of_task(task: WorkerTask) -> Values:
    """Its state, batches and commits of offsets; shares of commits are of the last minute."""
    measures = task.measures
    share = measures.average(COMMIT_SUCCESS)
    return {
        "status": task.shown.lower(),
        "running-ratio": measures.share_of(State.RUNNING),
        "pause-ratio": measures.share_of(State.PAUSED),
        **_sizes(measures, BATCH_SIZE),
        **_times(measures, COMMIT_TIME),
        "offset-commit-success-percentage": share,
        "offset-commit-failure-percentage": 1 - share,
    }


def of_source(task: WorkerTask) -> Values | None:
    """Records from the source to the topic; with transactions those that are committed count."""
    if not isinstance(task, WorkerSourceTask):
        return None
    task.note_arrivals()
    measures = task.measures
    found = {
        **measures.counted(),
        **_times(measures, source_task.POLL_TIME),
        source_task.ACTIVE: task.active_count,
        **_sizes(measures, source_task.ACTIVE),
    }
    if isinstance(task, ExactlyOnceSourceTask):
        found |= _sizes(measures, exactly_once.TRANSACTION_SIZE)
    return found


def of_sink(task: WorkerTask) -> Values | None:
    """Records from the topics to the sink; those count as sent that `put` has taken."""
    if not isinstance(task, WorkerSinkTask):
        return None
    measures = task.measures
    return {
        **measures.counted(),
        **_times(measures, sink_task.PUT_TIME),
        "partition-count": len(task.assigned),
        "offset-commit-seq-no": task.commit_count,
        sink_task.ACTIVE: task.active_count,
        **_sizes(measures, sink_task.ACTIVE),
    }


def of_errors(task: WorkerTask) -> Values | None:
    """Failures, and their handling (KIP-298)."""
    if not isinstance(task, WorkerSourceTask | WorkerSinkTask):
        return None
    tolerance = task.tolerance
    found = {
        "total-record-failures": tolerance.failures,
        "total-record-errors": tolerance.errors,
        "total-records-skipped": tolerance.skipped,
        "total-retries": tolerance.retries,
        "total-errors-logged": tolerance.logged,
        "last-error-timestamp": tolerance.last_error_ms or 0,
    }
    if isinstance(task, WorkerSinkTask) and task.queue is not None:
        found["deadletterqueue-produce-requests"] = task.queue.requests
        found["deadletterqueue-produce-failures"] = task.queue.failures
    return found


def _sizes(measures: TaskMeasures, name: str) -> dict[str, float]:
    return {f"{name}-max": measures.maximum(name), f"{name}-avg": measures.average(name)}


def _times(measures: TaskMeasures, name: str) -> dict[str, float]:
    return {
        f"{name}-max-time-ms": measures.maximum(name),
        f"{name}-avg-time-ms": measures.average(name),
    }
