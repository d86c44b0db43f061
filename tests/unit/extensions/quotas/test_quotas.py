"""Quotas of a broker follow the registry."""

from __future__ import annotations

from broker_world import BrokerWorld

from ottla.errors import ErrorCode
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest
from ottla.structs import ClientEntity


def test_quotas_of_clients_and_addresses_are_followed():
    """Those from before the start are in force at once."""
    world = BrokerWorld().start()
    client, address = ClientEntity(client_id="app"), ClientEntity(ip="10.0.0.9")
    world.change_client(client, controller_mutation_rate=1)
    world.change_client(address, connection_creation_rate=5)
    assert world.broker.processor.ip_limits == [("10.0.0.9", 5)]
    for names in ("abc", "def"):
        codes = [
            world.ask(creation(name, 30), 6, client_id=client_id).topics[0].error_code
            for name, client_id in zip(names, ("app", "app", "other"), strict=True)
        ]
        assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0]
        world = world.again()
        assert world.broker.processor.ip_limits == [("10.0.0.9", 5)]


def creation(name, count=1):
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=1)],
        timeout_ms=1_000,
    )


def test_default_of_the_brokers_file_is_charged_from_the_first_request():
    """No entity of the registry has to be there for that."""
    world = BrokerWorld(quota_producer_default=1_000).start()

    assert world.broker.apis.new_context is not None
    assert BrokerWorld().start().broker.apis.new_context is None
