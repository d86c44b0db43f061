"""Health of a broker on ZooKeeper, as whoever restarts brokers asks for it."""

from __future__ import annotations

import pytest
from http_pages import bean, get, scrape

from ottla.runtime.free_port import free_port
from ottla.testing import wait_until

SESSION = "kafka_server_sessionexpirelistener"


@pytest.mark.wide
def test_broker_is_healthy_while_zookeeper_is_away(start_broker, start_zookeeper):
    """Else one outage of ZooKeeper would restart every broker; metrics tell of it."""
    zookeeper = start_zookeeper()
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    start_broker(
        zookeeper_connect=zookeeper.connect,
        zookeeper_session_timeout_ms=3000,
        metrics_listener=url,
    )
    latency = bean(url, "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs")
    assert latency["Count"] > 0
    assert scrape(url)[f"{SESSION}_isconnected", ()] == 1

    zookeeper.kill()
    wait_until(lambda: scrape(url)[f"{SESSION}_isconnected", ()] == 0, "ZooKeeper is missed")
    assert get(f"{url}/healthz") == (200, "ok\n")
    disconnects = bean(
        url, "kafka.server:type=SessionExpireListener,name=ZooKeeperDisconnectsPerSec"
    )
    assert disconnects["Count"] == 1

    zookeeper.start()
    wait_until(lambda: scrape(url)[f"{SESSION}_isconnected", ()] == 1, "it is there again")
    wait_until(lambda: get(f"{url}/readyz")[0] == 200, "the broker is ready")
