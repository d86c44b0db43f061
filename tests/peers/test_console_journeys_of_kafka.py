"""The journeys through the console's pages, over a broker of Apache Kafka in KRaft mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from console_in_browser import browser, connectors, console, measured, visit, worker_url
from console_journeys import Journeys
from shop_in_browser import fill, guard, readers

from ottla import Admin
from ottla.clients.admin.descriptions import GroupListing
from ottla.testing import wait_until

__all__ = ["browser", "connectors", "console", "measured", "visit", "worker_url"]

pytestmark = pytest.mark.timeout(1800)

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # The shop's records are of one day, whenever the tests run.
    "log.retention.ms": -1,
    "log.message.timestamp.after.max.ms": 2**63 - 1,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[KafkaBroker]:
    """A broker of Apache Kafka 4.4 with what the shop has."""
    folder = tmp_path_factory.mktemp("kafka")
    tools = KafkaTools("4.4", kafka_jars("4.4"))
    kafka = KafkaBroker(tools, folder / "data", **SETTINGS).format().start()
    try:
        fill(kafka.bootstrap_servers)
        guard(kafka.bootstrap_servers)
        with readers(kafka.bootstrap_servers):
            yield kafka
    finally:
        kafka.stop()


class TestJourneysOverKafka(Journeys):
    """All that Apache Kafka's broker has something for."""

    def test_share_group_is_none_of_consumers(self, visit, broker):
        """It is not dead, has no lag, and its offsets are reset by Kafka's own command alone."""
        options = ("--bootstrap-server", broker.bootstrap_servers, "--group", "pickers")
        with (
            Admin(broker.bootstrap_servers) as admin,
            broker.tools.running("console-share-consumer", *options, "--topic", "quiet"),
        ):
            stable = GroupListing("pickers", "share", "Stable", "share")
            wait_until(lambda: stable in admin.list_groups(), "the share group", 120)
            page = visit("/groups?q=pickers")
            row = page.locator("main tbody tr", has_text="pickers")
            wait_until(row.count, "the share group in the list", meanwhile=page.reload)
            assert "share" in row.inner_text()
            assert "Dead" not in row.inner_text()
            page.click("main tbody >> text=pickers")
            assert "This is a share group" in page.inner_text("main")
            assert "kafka-share-groups --describe" in page.inner_text("main")
            assert "Reset offsets" not in page.inner_text("main")
            visit("/group/reset?id=pickers", status=400)

    def test_controllers_of_kraft_are_no_broker_s(self, visit):
        """The metadata name any broker that lives; the page does not."""
        page = visit("/brokers")
        assert "quorum of KRaft" in page.inner_text("main .note")
        assert page.locator("main .tag", has_text="controller").count() == 0
        assert "controllers of KRaft" in visit("/").inner_text("main .stats")

    # KRaft keeps its state in a log of its own: there is no tree, and nobody to show one.
    test_registry_is_walked_by_links = None
