"""Brokers die and come back under load: what was acknowledged is there, once and in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from cluster_load import SteadyLoad
from confluent_kafka.admin import NewTopic

from ottla.clients.legacy import FetchRequest, SimpleConsumer
from ottla.errors import ErrorCode
from ottla.testing import wait_until

BROKERS = [1, 2, 3]


def test_killed_leader_is_followed_by_another(cluster, view, unique):
    """kill -9: writable again after the session, in sync again after the return."""
    topic = unique("killed")
    view.create(topic)
    with SteadyLoad(cluster.bootstrap_servers, topic) as load:
        load.until_more()
        leader = view.leaders(topic)[0]
        cluster.kill_broker(leader)
        load.until_more()
        view.until_others_lead(topic, leader)
        cluster.start_broker(leader)
        load.until_more()
    view.until_all_in_sync(topic, BROKERS)
    load.check()


def test_stopped_leader_hands_over(cluster, view, unique):
    """SIGTERM: others lead before it goes, so that hardly anybody notices."""
    topic = unique("stopped")
    view.create(topic)
    with SteadyLoad(cluster.bootstrap_servers, topic) as load:
        load.until_more()
        leader = view.leaders(topic)[0]
        said_before = cluster.brokers[leader].log
        assert cluster.stop_broker(leader) == 0
        load.until_more()
        view.until_others_lead(topic, leader)
        said = cluster.brokers[leader].log.removeprefix(said_before)
        assert "is stopping" in said
        assert "others will be elected" not in said
    load.check()


def test_simple_consumer_is_answered_by_the_leader_alone(cluster, view, unique):
    """Followers answered it as well, and the page said that they do not."""
    topic = unique("simple")
    view.create(topic)
    leader = view.leaders(topic)[0]
    for broker_id in BROKERS:
        with SimpleConsumer("127.0.0.1", cluster.brokers[broker_id].port) as consumer:
            answer = consumer.fetch(FetchRequest(topic, 0, 0))
            refusal = ErrorCode.NONE if broker_id == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.error_code == refusal


def test_topic_with_a_replica_on_each_broker_needs_them_all(cluster, view, unique):
    """INVALID_REPLICATION_FACTOR while one is away; it can be made once that is back."""
    topic = unique("wide")
    cluster.stop_broker(3)
    wait_until(lambda: view.brokers() == [1, 2], "broker 3 is missed")
    assert not view.is_created(NewTopic(topic, 1, 3))
    with ThreadPoolExecutor(1) as starting:
        started = starting.submit(cluster.start_broker, 3)
        view.create(topic)
        started.result()

    view.until_all_in_sync(topic, BROKERS)


def test_killed_controller_is_followed_by_another(cluster, view, unique):
    """The next one creates topics, and knows those that there were."""
    topic = unique("controlled")
    view.create(topic)
    controller = view.controller()
    with SteadyLoad(cluster.bootstrap_servers, topic) as load:
        cluster.kill_broker(controller)
        wait_until(lambda: view.controller() not in (controller, -1), "another controller")
        view.create(unique("after"), partitions=1, replicas=2)
        load.until_more()
    load.check()


def test_all_brokers_killed_at_once_come_back_with_everything(cluster, view, unique):
    """The page cache survives, and so do epochs and high watermarks."""
    topic = unique("dark")
    view.create(topic)
    with SteadyLoad(cluster.bootstrap_servers, topic) as load:
        load.until_more()
        for broker_id in BROKERS:
            cluster.kill_broker(broker_id)
        cluster.start_brokers()
        load.until_more()
    load.check()


def test_leader_that_slept_past_its_session_is_fenced(cluster, view, unique):
    """It wakes up believing that it leads: it registers again, and follows."""
    topic = unique("asleep")
    view.create(topic)
    with SteadyLoad(cluster.bootstrap_servers, topic) as load:
        sleeper = view.leaders(topic)[0]
        said_before = cluster.brokers[sleeper].log
        cluster.pause_broker(sleeper)
        load.until_more()
        cluster.resume_broker(sleeper)

        def is_back() -> bool:
            said = cluster.brokers[sleeper].log.removeprefix(said_before)
            return "is registered again" in said

        wait_until(is_back, "registered again")
        load.until_more()
    view.until_all_in_sync(topic, BROKERS)
    load.check()
