"""For tests of Ottla and of programs that use it: brokers in the test's process, time by hand.

The names are imported when they are first used: pytest imports this package in every suite.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "App": "scenario",
    "Faults": "faults",
    "InProcessBroker": "in_process_broker",
    "InProcessCluster": "in_process_cluster",
    "KafkaContainer": "container",
    "LiveGroup": "in_process_broker",
    "LiveMember": "in_process_broker",
    "MemoryDisk": "memory_disk",
    "MemoryNetwork": "runtime",
    "MockBackground": "runtime",
    "MockClock": "virtual_loop",
    "MockRuntime": "runtime",
    "MockScheduler": "runtime",
    "NeverHappenedError": "waiting",
    "RequestFault": "faults",
    "Scenario": "scenario",
    "ScenarioFailedError": "scenario",
    "ScenarioOutcome": "scenario",
    "ScenarioWorld": "scenario",
    "mock_runtime": "runtime",
    "wait_until": "waiting",
    "wait_until_async": "waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
    value = getattr(import_module(f"ottla.testing.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
