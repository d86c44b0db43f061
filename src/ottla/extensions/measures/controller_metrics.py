"""The controller's knowledge, elections and work, as metrics."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.extensions.measures.domains import CONTROLLER
from ottla.metrics.metrics_registry import Family, FamilyName, Kind, MetricsRegistry, Series
from ottla.metrics.sums import summed

if TYPE_CHECKING:
    from ottla.controller.controller import Controller
    from ottla.controller.controller_context import ControllerContext, TopicContext

TOPICS_IN_A_SLICE: Final = 100


class ControllerState:
    """The controller's present work, as the number that Kafka has for it."""

    IDLE = 0
    CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    REASSIGNMENT = 5
    AUTO_BALANCE = 6
    MANUAL_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE = 10
    LOG_DIR_CHANGE = 11
    UNCLEAN_ELECTION = 13
    LIST_REASSIGNMENT = 15


STATE_WORDS: Final[tuple[tuple[str, int], ...]] = (
    ("unclean election", ControllerState.UNCLEAN_ELECTION),
    ("preferred_replica_election", ControllerState.MANUAL_BALANCE),
    ("elect leaders", ControllerState.MANUAL_BALANCE),
    ("election", ControllerState.CHANGE),
    ("/brokers/ids", ControllerState.BROKER_CHANGE),
    ("log dir failure", ControllerState.LOG_DIR_CHANGE),
    ("log_dir_event", ControllerState.LOG_DIR_CHANGE),
    ("delete", ControllerState.TOPIC_DELETION),
    ("StopReplica", ControllerState.TOPIC_DELETION),
    ("LeaderAndIsr", ControllerState.LEADER_AND_ISR_RESPONSE),
    ("alter partitions", ControllerState.ISR_CHANGE),
    ("controlled shutdown", ControllerState.CONTROLLED_SHUTDOWN),
    ("list reassignments", ControllerState.LIST_REASSIGNMENT),
    ("reassign", ControllerState.REASSIGNMENT),
    ("leader rebalance", ControllerState.AUTO_BALANCE),
    ("topic", ControllerState.TOPIC_CHANGE),
    ("partitions", ControllerState.TOPIC_CHANGE),
)
"""The first word that is in the name of an event says what the controller does in it."""

EVENT_TIMERS: Final[dict[int, str]] = {
    ControllerState.CHANGE: "ControllerChange",
    ControllerState.BROKER_CHANGE: "LeaderElection",
    ControllerState.TOPIC_CHANGE: "TopicChange",
    ControllerState.TOPIC_DELETION: "TopicDeletion",
    ControllerState.REASSIGNMENT: "PartitionReassignment",
    ControllerState.AUTO_BALANCE: "AutoLeaderBalance",
    ControllerState.MANUAL_BALANCE: "ManualLeaderBalance",
    ControllerState.CONTROLLED_SHUTDOWN: "ControlledShutdown",
    ControllerState.ISR_CHANGE: "IsrChange",
    ControllerState.LEADER_AND_ISR_RESPONSE: "LeaderAndIsrResponseReceived",
    ControllerState.LOG_DIR_CHANGE: "LogDirChange",
    ControllerState.UNCLEAN_ELECTION: "UncleanLeaderElectionEnable",
    ControllerState.LIST_REASSIGNMENT: "ListPartitionReassignment",
}


def controller_state(event: str) -> int:
    """The state of the controller while it works on an event."""
    found = (state for word, state in STATE_WORDS if word in event)
    return next(found, ControllerState.IDLE)


def offline_partition_count(context: ControllerContext, topic: TopicContext) -> int:
    """Partitions without a live leader, of a topic that is not being deleted."""
    if topic.name in context.topics_to_delete:
        return 0
    return sum(not context.has_live_leader(partition) for partition in topic.partitions)


def imbalance_count(context: ControllerContext, topic: TopicContext) -> int:
    """Partitions that another replica than the preferred one leads."""
    if topic.name in context.topics_to_delete:
        return 0
    return sum(
        state.leader != topic.assignment[number][0] for number, state in topic.states.items()
    )


def _read_context(controller: Controller, read: Callable[[ControllerContext], int]) -> int:
    return read(controller.context)


def _sum_over_topics(
    controller: Controller, count: Callable[[ControllerContext, TopicContext], int]
) -> Series:
    context = controller.context
    return summed(context.topics.values(), partial(count, context), TOPICS_IN_A_SLICE)


def of_controller(registry: MetricsRegistry, controller: Controller) -> None:
    """The cluster as its controller sees it; 0 on brokers that are not the controller."""
    gauges: dict[str, tuple[str, Callable[[ControllerContext], int]]] = {
        "GlobalTopicCount": ("Topics of the cluster.", lambda each: len(each.topics)),
        "ActiveBrokerCount": ("Brokers that are registered.", lambda each: len(each.brokers)),
        "TopicsToDeleteCount": (
            "Topics that are being deleted.",
            lambda each: len(each.topics_to_delete),
        ),
        "ReplicasToDeleteCount": (
            "Replicas of topics that are being deleted.",
            lambda each: sum(
                len(each.replicas_of(each.topics[name].partitions))
                for name in each.topics_to_delete
            ),
        ),
        "TopicsIneligibleToDeleteCount": (
            "Topics whose deletion waits for a broker or a disk that is away.",
            lambda each: len({replica.topic_partition.topic for replica in each.held_back()}),
        ),
        "ReplicasIneligibleToDeleteCount": (
            "Replicas whose deletion waits for it.",
            lambda each: len(each.held_back()),
        ),
    }
    sums: dict[str, tuple[str, Callable[[ControllerContext, TopicContext], int]]] = {
        "OfflinePartitionsCount": ("Partitions without a leader.", offline_partition_count),
        "PreferredReplicaImbalanceCount": (
            "Partitions that another replica than the preferred one leads.",
            imbalance_count,
        ),
        "GlobalPartitionCount": (
            "Partitions of the cluster.",
            lambda context, topic: len(topic.assignment),
        ),
    }
    for name, (doc, count) in sums.items():
        family = FamilyName(CONTROLLER, "KafkaController", name)
        series = partial(_sum_over_topics, controller, count)
        registry.register(Family(family, Kind.GAUGE, doc, series))
    for name, (doc, read) in gauges.items():
        family = FamilyName(CONTROLLER, "KafkaController", name)
        registry.gauge(family, doc, partial(_read_context, controller, read))
    _of_activity(registry, controller)
    of_controller_events(registry, controller)


def _of_activity(registry: MetricsRegistry, controller: Controller) -> None:
    """Whether this broker is the controller, and its work."""
    registry.gauge(
        FamilyName(CONTROLLER, "KafkaController", "ActiveControllerCount"),
        "Whether this broker is the controller: 1 in the whole cluster.",
        lambda: int(controller.is_active),
    )
    registry.gauge(
        FamilyName(CONTROLLER, "KafkaController", "ControllerState"),
        "What the controller is doing, as Kafka's number for it; 0 is nothing.",
        lambda: controller_state(controller.events.under_way),
    )
    registry.meter(
        FamilyName(CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec"),
        "Leaders that were elected without being in sync: records may be lost.",
        lambda: controller.unclean_elections,
        "elections",
    )


def of_controller_events(registry: MetricsRegistry, controller: Controller) -> None:
    """How long events of the controller wait, and how long they take."""
    events = controller.events
    registry.gauge(
        FamilyName(CONTROLLER, "ControllerEventManager", "EventQueueSize"),
        "Events that wait for the controller.",
        lambda: len(events),
    )
    waits = registry.histogram(
        FamilyName(CONTROLLER, "ControllerEventManager", "EventQueueTimeMs"),
        "How long events waited for the controller, in ms.",
    )
    timers = {
        state: registry.timer(
            FamilyName(CONTROLLER, "ControllerStats", f"{name}RateAndTimeMs"),
            "How often this was done, and how long it took, in ms.",
        )
        for state, name in EVENT_TIMERS.items()
    }

    def on_event(name: str, waited_ms: int, took_ms: int) -> None:
        waits.update(waited_ms, registry.now_ms)
        timer = timers.get(controller_state(name))
        if timer is not None:
            timer.update(took_ms, registry.now_ms)

    events.on_event = on_event
