"""All features of a broker at once, and what holds for each of them."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
from broker_world import BrokerWorld

from ottla.extensions.audit.audit import Audit
from ottla.extensions.measures.measures import Measures
from ottla.extensions.rights.rights import Rights
from ottla.extensions.tokens.tokens import Tokens
from ottla.metrics import MetricsReporter
from ottla.server.extension import FAMILIES, late_families

ME = __name__
EVERYTHING = {
    "zookeeper_connect": "here:2181",
    "broker_id": 0,
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "delegation_token_secret_key": "secret",
    "ottla_audit_topic": "audit",
    "metric_reporters": f"{ME}:Keeper",
    "metric_reporters_interval_ms": "1000",
}


class Keeper(MetricsReporter):
    """It keeps nothing."""

    def report(self, beans):
        pass


STOPS = (
    ("link.controlled_shutdown", "PENDING_CONTROLLED_SHUTDOWN"),
    ("audit.close", "SHUTTING_DOWN"),
    ("membership.leave", "SHUTTING_DOWN"),
    ("controller.shutdown", "SHUTTING_DOWN"),
    ("coordinators.shutdown", "SHUTTING_DOWN"),
    ("replica_manager.shutdown", "SHUTTING_DOWN"),
    ("processor.stop", "SHUTTING_DOWN"),
    ("dynamic_config.stop", "SHUTTING_DOWN"),
    ("tls.stop", "SHUTTING_DOWN"),
    ("features.stop", "SHUTTING_DOWN"),
    ("authorizer.stop", "SHUTTING_DOWN"),
    ("tokens.stop", "SHUTTING_DOWN"),
    ("link.close", "SHUTTING_DOWN"),
    ("registry.close", "SHUTTING_DOWN"),
    ("log_manager.shutdown", "SHUTTING_DOWN"),
    ("reporters.close", "SHUTTING_DOWN"),
)
ABSENT = ("link", "audit", "authorizer", "tokens", "reporters")


@pytest.mark.parametrize("settings", [EVERYTHING, {}], ids=["everything", "plain"])
def test_every_feature_is_stopped_in_the_order_in_which_others_need_it(settings, core_source):
    """The audit log writes while the cluster serves it; metrics show the end of all others."""
    world = BrokerWorld(**settings).start()
    world.steps.clear()
    expected = [step for step in STOPS if settings or step[0].split(".")[0] not in ABSENT]
    for step, _ in expected:
        part, method = step.split(".")
        if part == "audit":
            world.spy(world.broker.find(Audit).log, method, step)
        elif part == "tokens":
            world.spy(world.broker.find(Tokens).store, method, step)
        elif part == "reporters":
            world.spy(world.broker.find(Measures).reporters, method, step)
        elif part == "authorizer":
            world.spy(world.broker.find(Rights).authorizer, method, step)
        elif part != "processor":
            world.spy(getattr(world.broker, part), method, step)
    world.stop()

    assert world.steps == expected
    assert world.broker.replica_manager.is_leaving


@pytest.mark.parametrize("place", FAMILIES)
def test_a_row_names_the_apis_of_its_family(place):
    """Else an API would be told and not served, or served and not told."""
    (family,) = [each for each in late_families(MagicMock()) if each._keys == FAMILIES[place]]

    assert family._make().apis().keys() == family.apis().keys()
