"""For tests of Ottla and of programs that use it: brokers in the test's process, time by hand.

The names are imported when they are first used: pytest imports this package in every suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.late_names import late_names

if TYPE_CHECKING:
    from ottla.testing.container import KafkaContainer
    from ottla.testing.faults import Faults, RequestFault
    from ottla.testing.in_process_broker import InProcessBroker
    from ottla.testing.in_process_cluster import InProcessCluster
    from ottla.testing.live_brokers import LiveGroup, LiveMember
    from ottla.testing.memory_disk import MemoryDisk
    from ottla.testing.runtime import (
        MemoryNetwork,
        MockBackground,
        MockRuntime,
        MockScheduler,
        mock_runtime,
    )
    from ottla.testing.scenario import (
        App,
        Scenario,
        ScenarioFailedError,
        ScenarioOutcome,
        ScenarioWorld,
    )
    from ottla.testing.virtual_loop import MockClock
    from ottla.testing.waiting import NeverHappenedError, wait_until, wait_until_async

__all__ = [
    "App",
    "Faults",
    "InProcessBroker",
    "InProcessCluster",
    "KafkaContainer",
    "LiveGroup",
    "LiveMember",
    "MemoryDisk",
    "MemoryNetwork",
    "MockBackground",
    "MockClock",
    "MockRuntime",
    "MockScheduler",
    "NeverHappenedError",
    "RequestFault",
    "Scenario",
    "ScenarioFailedError",
    "ScenarioOutcome",
    "ScenarioWorld",
    "mock_runtime",
    "wait_until",
    "wait_until_async",
]

__getattr__, __dir__ = late_names(
    __name__,
    {
        "container": "KafkaContainer",
        "faults": "Faults RequestFault",
        "in_process_broker": "InProcessBroker",
        "in_process_cluster": "InProcessCluster",
        "live_brokers": "LiveGroup LiveMember",
        "memory_disk": "MemoryDisk",
        "runtime": "MemoryNetwork MockBackground MockRuntime MockScheduler mock_runtime",
        "scenario": "App Scenario ScenarioFailedError ScenarioOutcome ScenarioWorld",
        "virtual_loop": "MockClock",
        "waiting": "NeverHappenedError wait_until wait_until_async",
    },
)
