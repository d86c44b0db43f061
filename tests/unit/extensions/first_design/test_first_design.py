"""The feature as a whole: wanted by a setting, beside today's topics, with the broker's life."""

from __future__ import annotations

import socket

import pytest
from byte_logs_world import entry
from first_design_client import SETTINGS, RawClient, feature

import ottla
from ottla.extensions.first_design import first_design_listener
from ottla.extensions.first_design.first_design import FirstDesign, advertised
from ottla.extensions.first_design.first_design_listener import is_open_to_others
from ottla.registry.tree import NoNodeError
from ottla.runtime.host_name import canonical_host_name
from ottla.testing import InProcessBroker


def test_feature_is_off_without_its_setting():
    """No listener, no directory."""
    with InProcessBroker() as broker:
        assert broker.broker.find(FirstDesign) is None
        assert not broker.disk.exists("/data.first-design")


def test_listener_without_a_host_is_for_this_machine_alone():
    """As every listener of Ottla that no setting opens to others."""
    with InProcessBroker(**SETTINGS) as broker:
        assert feature(broker).listener.address.host == "127.0.0.1"
    assert advertised("0.0.0.0") == advertised("::") == canonical_host_name()
    assert advertised("10.0.0.1") == "10.0.0.1"


def test_listener_that_is_open_to_others_says_what_it_lacks(caplog, monkeypatch):
    """It has no logins, no rights, no quotas."""
    with InProcessBroker(**SETTINGS):
        assert "open to others" not in caplog.text
    monkeypatch.setattr(first_design_listener, "is_open_to_others", lambda host: True)
    with InProcessBroker(**SETTINGS):
        assert "open to others: it has no logins, no rights, no quotas" in caplog.text


def test_addresses_that_other_machines_may_reach():
    """All but those of the loopback interface."""
    assert not any(map(is_open_to_others, ("127.0.0.1", "127.0.0.2", "::1", "localhost")))
    assert all(map(is_open_to_others, ("0.0.0.0", "::", "10.0.0.1", "example.org")))


def test_first_design_and_today_do_not_meet():
    """A topic of the same name, on the same broker, in the same registry, is another topic."""
    with InProcessBroker(**SETTINGS) as broker, RawClient(broker) as client:
        client.produce(b"old")
        client.wait_for_end(len(entry(b"old")))
        with ottla.Producer(broker.bootstrap_servers) as producer:
            assert producer.send("pages", b"new").result(10).offset == 0
        assert client.offsets() == [len(entry(b"old")), 0]
        registry = broker.broker.registry
        data, stat = broker.run(registry.get("/first_design/brokers/topics/pages/0"))
        assert (data, stat.is_ephemeral) == (b"2", True)
        assert broker.run(registry.get("/brokers/topics/pages"))[0] != data


def test_nodes_end_with_the_broker_and_are_there_after_its_start():
    """They are those of its session; topics that it has are registered again."""
    broker = InProcessBroker(**SETTINGS)
    with broker, RawClient(broker) as client:
        client.produce(b"a")
        client.wait_for_end(10)
    with broker:
        registry = broker.broker.registry
        port = feature(broker).listener.address.port
        data, _ = broker.run(registry.get("/first_design/brokers/ids/0"))
        assert data.endswith(b":127.0.0.1:%d" % port)
        assert broker.run(registry.get("/first_design/brokers/topics/pages/0"))[0] == b"2"
        with pytest.raises(NoNodeError):
            broker.run(registry.get("/first_design/brokers/topics/none/0"))


def test_start_that_fails_lets_the_directory_go():
    """The port is taken: the broker says so, and starts when it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = InProcessBroker(**SETTINGS | {"first_design_listener": f":{port}"})
        with pytest.raises(OSError, match="cannot listen"):
            broker.start()
    with broker, RawClient(broker) as client:
        assert client.offsets() == [0]
