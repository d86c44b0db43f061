"""Measures of a broker begin and end with it, and follow its settings."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest
from broker_world import BrokerWorld

from ottla.errors import KafkaError
from ottla.extensions.measures.measures import Measures
from ottla.metrics import MetricsReporter
from ottla.metrics.metrics_registry import FamilyName
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.registry.paths import DEFAULT_ENTITY
from ottla.server.membership import BrokerState

ME = __name__
STATE = FamilyName("kafka.server", "KafkaServer", "BrokerState").bean()
BROKERS = "brokers"
REPORTER = {"metric_reporters": f"{ME}:Keeper"}
EACH_SECOND = {"metric_reporters_interval_ms": "1000"}


class Keeper(MetricsReporter):
    """It keeps what it gets."""

    reports: ClassVar = []
    ends: ClassVar = []

    def report(self, beans):
        Keeper.reports.append(beans)

    def close(self):
        Keeper.ends.append(self)


@pytest.fixture(autouse=True)
def kept():
    Keeper.reports.clear()
    Keeper.ends.clear()


def test_reporters_of_the_file_report_the_brokers_state():
    """From the moment on in which it serves; clients may push theirs then."""
    world = BrokerWorld(**REPORTER, **EACH_SECOND).start()
    world.runtime.advance(1_500)

    assert Keeper.reports[0][STATE] == {"Value": BrokerState.RUNNING}
    assert ApiKey.PUSH_TELEMETRY in keys(world)
    assert ApiKey.PUSH_TELEMETRY not in keys(BrokerWorld().start())
    world.stop()
    assert len(Keeper.ends) == 1


def keys(world):
    """The APIs that the broker serves."""
    body = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return {each.api_key for each in world.ask(body, 3).api_keys}


def test_reporters_come_and_go_with_the_settings():
    """The first of them too, and one from before the start."""
    world = BrokerWorld(**EACH_SECOND).start()
    assert world.broker.find(Measures).reporters is None
    world.change(BROKERS, DEFAULT_ENTITY, **REPORTER)
    world.runtime.advance(1_500)
    assert Keeper.reports.pop()[STATE] == {"Value": BrokerState.RUNNING}
    assert world.broker.find(Measures).reporters is not None
    made = world.broker.find(Measures).reporters
    world.change(BROKERS, DEFAULT_ENTITY, log_retention_ms=5_000)
    assert world.broker.find(Measures).reporters is made
    assert len(Keeper.ends) == 1
    world.change(BROKERS, DEFAULT_ENTITY, **REPORTER)
    world = world.again(**EACH_SECOND)
    Keeper.reports.clear()
    world.runtime.advance(1_500)

    assert len(Keeper.reports) == 1


def test_request_log_is_on_from_the_start_where_its_level_says_so():
    """Otherwise no request is measured for it."""
    log = logging.getLogger("kafka.request.logger")
    before = log.level
    try:
        for level, is_on in ((logging.DEBUG, True), (logging.WARNING, False)):
            log.setLevel(level)
            assert (BrokerWorld().start().broker.apis.meter is not None) is is_on
    finally:
        log.setLevel(before)


def test_reporters_end_where_the_start_of_the_broker_fails():
    """They have had its settings by then."""
    world = BrokerWorld(**REPORTER)
    world.refused = OSError("in use")
    with pytest.raises(OSError, match="in use"):
        world.start()

    assert len(Keeper.ends) == 1


def test_running_broker_takes_no_reporter_of_a_clients_own_choice():
    """Its file names those that it may import."""
    dynamic = BrokerWorld().start().broker.dynamic_config

    with pytest.raises(KafkaError, match="os:abort"):
        dynamic.validate_broker(dynamic.broker_name, {"metric.reporters": "os:abort"})
