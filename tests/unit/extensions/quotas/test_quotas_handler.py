"""DescribeClientQuotas and AlterClientQuotas: what is stored, shown and refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.quotas.quotas_handler import ClientQuotasHandler
from ottla.protocol.configs import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.runtime import Slices
from ottla.server.dynamic_config import DynamicConfig
from ottla.structs import ClientEntity
from ottla.testing import mock_runtime

EXACT, DEFAULT, ANY = range(3)


class World:
    """A handler over a registry, and the settings of broker 3 that follow it."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.run = self.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.run(self.registry.start())
        self.run(ensure_persistent_paths(self.registry))
        self.dynamic = DynamicConfig(self.runtime, self.registry, BrokerConfig(), 3)
        self.run(self.dynamic.start())
        self.handler = ClientQuotasHandler(self.dynamic, Slices())

    def alter(self, *entity: tuple[str, str | None], validate_only=False, **limits):
        """The outcome of a change; None removes a limit."""
        operations = [
            QuotaOperation(key=key, value=limit or 0.0, remove=limit is None)
            for key, limit in limits.items()
        ]
        components = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity]
        request = AlterClientQuotasRequest(
            entries=[QuotaAlteration(entity=components, ops=operations)],
            validate_only=validate_only,
        )
        handle = self.handler.handle_alter_client_quotas
        response = self.run(handle(SimpleNamespace(api_version=1), request))
        self.runtime.scheduler.run_ready()
        assert encode(response, 1)
        (result,) = response.entries
        assert result.entity == components
        return ErrorCode.of(result.error_code), result.error_message

    def describe(self, *components: tuple, strict=False):
        """What is shown, as pairs of the entity and its limits."""
        request = DescribeClientQuotasRequest(
            components=[
                QuotaFilterComponent(entity_type=kind, match_type=match, match=name)
                for kind, match, *names in components
                for name in (names or [None])
            ],
            strict=strict,
        )
        handle = self.handler.handle_describe_client_quotas
        response = self.run(handle(SimpleNamespace(api_version=1), request))
        assert encode(response, 1)
        return [
            (
                tuple((each.entity_type, each.entity_name) for each in entry.entity),
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries
        ]

    def stored(self, path: str) -> bytes:
        return self.run(self.registry.get(path))[0]


@pytest.fixture
def world() -> World:
    """No quotas yet."""
    return World()


def test_quotas_are_stored_as_kafka_stores_them(world):
    """Longs and doubles as texts; the default is a node of its own."""
    world.alter(("user", "CN=u1"), producer_byte_rate=1024.0, request_percentage=200.0)
    world.alter(("user", None), ("client-id", "app"), consumer_byte_rate=1.0)
    world.alter(("ip", "127.0.0.9"), connection_creation_rate=5.0)

    assert world.stored("/config/users/CN%3Du1") == (
        b'{"version":1,"config":{"producer_byte_rate":"1024","request_percentage":"200.0"}}'
    )
    assert world.stored("/config/users/<default>/clients/app") == (
        b'{"version":1,"config":{"consumer_byte_rate":"1"}}'
    )
    assert world.stored("/config/ips/127.0.0.9") == (
        b'{"version":1,"config":{"connection_creation_rate":"5"}}'
    )
    pair = ClientEntity("", "app")
    assert world.dynamic.client_overrides(pair) == {"consumer_byte_rate": "1"}


def test_changes_are_made_key_by_key(world):
    """Credentials in the same node stay; a limit that is not there can be removed."""
    alice = ClientEntity("alice")
    scram = {"SCRAM-SHA-256": "salt=x"}
    world.run(world.dynamic.entities.change_client(alice, lambda before: scram))
    world.alter(("user", "alice"), producer_byte_rate=1.0, consumer_byte_rate=2.0)
    world.alter(("user", "alice"), producer_byte_rate=None, request_percentage=None)

    assert world.run(world.dynamic.entities.read_client(alice)) == {
        "SCRAM-SHA-256": "salt=x",
        "consumer_byte_rate": "2",
    }
    assert world.describe() == [((("user", "alice"),), {"consumer_byte_rate": 2.0})]


def test_trial_changes_nothing(world):
    """validate_only says what would be refused."""
    error, _ = world.alter(("user", "a"), validate_only=True, producer_byte_rate=1.0)
    assert error is ErrorCode.NONE
    error, _ = world.alter(("user", "a"), validate_only=True, producer_byte_rate=-1.0)
    assert error is ErrorCode.INVALID_REQUEST
    assert world.describe() == []


@pytest.mark.parametrize(
    ("entity", "limits", "error", "words"),
    [
        ((), {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST, "an entity needs"),
        ((("", "a"),), {}, ErrorCode.INVALID_REQUEST, "must not be empty"),
        ((("user", ""),), {}, ErrorCode.INVALID_REQUEST, "must not be empty"),
        ((("user", "a"), ("user", "b")), {}, ErrorCode.INVALID_REQUEST, "more than once"),
        ((("group", "a"),), {}, ErrorCode.UNSUPPORTED_VERSION, "must be user, client-id or ip"),
        ((("ip", "1.2.3.4"), ("user", "b")), {}, ErrorCode.INVALID_REQUEST, "together"),
        ((("ip", "host.example"),), {}, ErrorCode.INVALID_REQUEST, "must be an IP address"),
        ((("user", "a"),), {"bogus": 1.0}, ErrorCode.INVALID_REQUEST, "bogus: must be one of"),
        ((("user", "a"),), {"bogus": None}, ErrorCode.INVALID_REQUEST, "bogus: must be one of"),
        ((("user", "a"),), {"producer_byte_rate": 1.5}, ErrorCode.INVALID_REQUEST, "whole number"),
        ((("user", "a"),), {"producer_byte_rate": 0.0}, ErrorCode.INVALID_REQUEST, "greater than"),
        ((("user", "a"),), {"connection_creation_rate": 1.0}, ErrorCode.INVALID_REQUEST, "one of"),
        ((("ip", None),), {"producer_byte_rate": 1.0}, ErrorCode.INVALID_REQUEST, "one of"),
    ],
)
def test_change_that_makes_no_sense_is_refused(world, entity, limits, error, words):
    """Each of them names what is wrong."""
    found, message = world.alter(*entity, **limits)
    assert found is error
    assert words in message
    assert world.describe() == []


@pytest.fixture
def all_kinds(world) -> World:
    """A quota for an entity of each kind, named and default."""
    for entity in (
        [("user", "alice")],
        [("user", None)],
        [("user", "alice"), ("client-id", "app")],
        [("user", "alice"), ("client-id", None)],
        [("client-id", "app")],
    ):
        world.alter(*entity, producer_byte_rate=1.0)
    world.alter(("ip", None), connection_creation_rate=1.0)
    return world


ALICE, APP = ("user", "alice"), ("client-id", "app")
OF_ALICE = [(ALICE,), (ALICE, APP), (ALICE, ("client-id", None))]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [*OF_ALICE, (("user", None),), (APP,), (("ip", None),)]),
        ([("user", EXACT, "alice")], False, OF_ALICE),
        ([("user", EXACT, "alice")], True, [(ALICE,)]),
        ([("user", DEFAULT)], True, [(("user", None),)]),
        ([("user", ANY)], True, [(ALICE,), (("user", None),)]),
        ([("client-id", ANY)], True, [(APP,)]),
        ([("client-id", EXACT, "app")], False, [(ALICE, APP), (APP,)]),
        ([("user", ANY), ("client-id", DEFAULT)], True, [(ALICE, ("client-id", None))]),
        ([("ip", ANY)], False, [(("ip", None),)]),
        ([("user", EXACT, "bob")], False, []),
    ],
)
def test_filter_finds_what_it_describes(all_kinds, components, strict, found):
    """Strict leaves out what has further components (KIP-546)."""
    shown = [entity for entity, _ in all_kinds.describe(*components, strict=strict)]
    assert sorted(shown, key=repr) == sorted(found, key=repr)


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", ANY)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY), ("user", DEFAULT)], ErrorCode.INVALID_REQUEST),
        ([("bogus", ANY)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", ANY), ("ip", ANY)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([("user", 3)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filter_that_makes_no_sense_is_refused(world, components, error):
    """The whole request is, with an error and null for entries."""
    with pytest.raises(KafkaError) as refusal:
        world.describe(*components)
    assert refusal.value.error is error


@pytest.mark.parametrize("name", ["<default>", "*", "a/b", "x y", "ü", "a=b,c", "%"])
def test_any_name_comes_back_as_it_was_given(world, name):
    """Whatever a path makes of it (KAFKA-9980)."""
    world.alter(("user", name), ("client-id", name), producer_byte_rate=1.0)
    entity = (("user", name), ("client-id", name))
    assert world.describe(("user", EXACT, name)) == [(entity, {"producer_byte_rate": 1.0})]
    assert world.describe(("user", DEFAULT)) == []


def test_values_of_other_programs_that_cannot_be_read_are_left_out(world):
    """Kafka's tools of ZooKeeper write what they are told."""
    alice = ClientEntity("alice")
    stored = {"producer_byte_rate": "many", "consumer_byte_rate": "5"}
    world.run(world.dynamic.entities.change_client(alice, lambda before: stored))
    assert world.describe() == [((("user", "alice"),), {"consumer_byte_rate": 5.0})]
