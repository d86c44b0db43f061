"""The metrics of a broker, under Kafka's names: the list of them, and their sources.

Each part of the broker has a function that registers its families. Most are read when they are
asked for, from the state that the broker has anyway; figures that only grow are counted by the
parts as plain numbers. There is no metric here that would always show the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.extensions.measures.consumer_lag import ConsumerLag
from ottla.extensions.measures.controller_metrics import of_controller
from ottla.extensions.measures.coordinator_metrics import of_groups, of_transactions
from ottla.extensions.measures.log_metrics import of_log_dirs, of_open_transactions
from ottla.extensions.measures.login_metrics import of_logins
from ottla.extensions.measures.network_metrics import of_certificates, of_loop, of_processor
from ottla.extensions.measures.replica_metrics import (
    of_fetch_sessions,
    of_fetchers,
    of_partitions,
    of_purgatories,
    of_replicas,
)
from ottla.extensions.measures.request_metrics import RequestMetrics
from ottla.extensions.measures.server_metrics import of_server, of_session
from ottla.extensions.measures.topic_metrics import of_topics
from ottla.metrics.metrics_registry import MetricsRegistry

if TYPE_CHECKING:
    from ottla.server.parts import Parts


class BrokerMetrics:
    """Everything that one broker measures; it is made when all parts of the broker are there."""

    def __init__(self, parts: Parts, registry: MetricsRegistry) -> None:
        self._parts = parts
        processor = parts.processor
        self.requests = RequestMetrics(registry, processor.sent)
        parts.apis.meter = self.requests
        processor.sent.on_sent = self.requests.on_sent
        replicas = parts.replica_manager
        of_topics(registry, replicas)
        of_replicas(registry, replicas)
        if parts.config.metrics_partitions_enable:
            of_partitions(registry, replicas)
        of_fetchers(registry, replicas, parts.config.metrics_partitions_enable)
        of_log_dirs(registry, parts.log_manager)
        of_purgatories(registry, replicas.delayed)
        of_fetch_sessions(registry, parts.fetch_sessions)
        of_controller(registry, parts.controller)
        of_groups(registry, parts.coordinators.groups.manager)
        of_transactions(registry, parts.coordinators.transactions)
        verifier, longest_ms = parts.coordinators.verifier, parts.config.transaction_max_timeout_ms
        of_open_transactions(registry, replicas, verifier, longest_ms)
        self.lag = ConsumerLag(parts, registry)
        of_processor(registry, processor)
        of_logins(registry, lambda: iter(processor.sasl.values()))
        of_certificates(registry, processor, parts.runtime.clock)
        for extension in parts.extensions.values():
            extension.measure(registry)
        of_loop(registry)
        if parts.config.zookeeper_connect is not None:
            of_session(registry, parts.registry)
        of_server(registry, parts)

    def close(self) -> None:
        """Measure nothing any longer."""
        self._parts.apis.meter = None
        self._parts.processor.sent.on_sent = None
