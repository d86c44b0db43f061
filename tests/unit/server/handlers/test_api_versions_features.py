"""ApiVersions and UpdateFeatures: what clients are told, which changes are made, who hears."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.features import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import SessionEndedError
from ottla.registry.znodes import FEATURE, encode_features
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features, FeaturesHandler
from ottla.testing import mock_runtime

NAME = "transaction.version"
INVALID = ErrorCode.INVALID_UPDATE_VERSION
UP, DOWN, UNSAFE = UpgradeType


class World:
    """Two brokers on one registry; the first one is asked."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.features = Features(self.runtime, self.registry)
        self.other = Features(self.runtime, self.registry)
        self.run(self.registry.start())
        self.run(self.features.start())
        self.run(self.other.start())

    def run(self, call):
        result = self.runtime.scheduler.run(call)
        self.runtime.scheduler.run_ready()
        return result

    def update(self, level, direction=UP, *, name=NAME, version=2, **fields):
        """The error code for one feature, wherever the version has it."""
        key = FeatureUpdateKey(feature=name, max_version_level=level)
        if version:
            key.upgrade_type = direction
        else:
            key.allow_downgrade = direction is not UP
        body = UpdateFeaturesRequest(feature_updates=[key], **fields)
        handler = FeaturesHandler(self.features)
        context = SimpleNamespace(api_version=version)
        answer = self.run(handler.handle_update_features(context, body))
        assert encode(answer, version)
        return answer.results[0].error_code if answer.results else answer.error_code


@pytest.fixture
def world():
    return World()


def test_level_is_followed_though_the_session_ended_meanwhile(world, monkeypatch):
    """The other broker kept to the old level until it was started again."""
    works, failures = world.registry.get, [SessionEndedError("over")] * 2

    async def fail_at_first(path):
        if failures:
            raise failures.pop()
        return await works(path)

    world.run(world.registry.create(FEATURE, encode_features({NAME: 2})))
    world.features.stop()
    monkeypatch.setattr(world.registry, "get", fail_at_first)
    world.run(world.registry.set(FEATURE, encode_features({NAME: 1})))
    world.runtime.advance(10_000)

    assert not failures
    assert world.other.finalized == {NAME: 1}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_level_goes_up_and_down_again_for_all_brokers(world, version):
    """A level goes up and down for all brokers, and its epoch goes up with each change."""
    assert world.update(2, version=version) == 0
    assert (world.other.finalized, world.other.epoch) == ({NAME: 2}, 0)
    assert world.update(1, DOWN, version=version) == 0
    assert world.update(0, UNSAFE, version=version) == 0

    assert (world.features.finalized, world.other.finalized) == ({}, {})
    assert world.other.epoch == 2


@pytest.mark.parametrize(
    ("name", "level", "direction"),
    [
        ("metadata.version", 1, UP),
        (NAME, 3, UP),
        (NAME, 0, UP),
        (NAME, 2, DOWN),
    ],
)
def test_change_that_cannot_be_made_is_refused(world, name, level, direction):
    """Unknown features and levels, and the wrong direction."""
    assert world.update(1) == 0

    assert world.update(level, direction, name=name) == INVALID
    assert world.features.finalized == {NAME: 1}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_refusal_is_an_error_of_the_whole_request(world, version):
    """Nothing of it was done: Kafka 4 names no single feature in any version."""
    keys = [FeatureUpdateKey(feature=name, max_version_level=9) for name in (NAME, "other")]
    body = UpdateFeaturesRequest(feature_updates=keys)
    call = FeaturesHandler(world.features).handle_update_features
    answer = world.run(call(SimpleNamespace(api_version=version), body))

    assert encode(answer, version)
    assert (answer.error_code, answer.results) == (INVALID, [])
    assert answer.error_message


@pytest.mark.parametrize("direction", [UP, DOWN, UNSAFE])
def test_level_that_is_in_force_already_may_be_set_again(world, direction):
    """It is neither up nor down."""
    assert world.update(1) == 0

    assert world.update(1, direction) == 0
    assert world.features.finalized == {NAME: 1}


@pytest.mark.parametrize(("version", "named"), [(0, [NAME]), (1, [NAME]), (2, [])])
def test_features_are_named_in_the_answer_before_version_2(world, version, named):
    """Since then an answer without an error says that all is done."""
    key = FeatureUpdateKey(feature=NAME, max_version_level=1, upgrade_type=UP)
    body = UpdateFeaturesRequest(feature_updates=[key])
    call = FeaturesHandler(world.features).handle_update_features
    answer = world.run(call(SimpleNamespace(api_version=version), body))

    assert [each.feature for each in answer.results] == named
    assert answer.error_code == 0


def test_changes_are_followed_until_the_broker_stops(world):
    """One that was never started can be stopped, too."""
    Features(world.runtime, world.registry).stop()
    world.other.stop()
    assert world.update(2) == 0
    world.runtime.advance(10)

    assert (world.features.finalized, world.other.finalized) == ({NAME: 2}, {})


def test_watch_of_the_registry_is_given_back(world, monkeypatch):
    """A registry that outlives the broker would call it again and again."""
    ended = []
    watch = SimpleNamespace(cancel=lambda: ended.append(True))
    monkeypatch.setattr(world.registry, "watch_data", lambda path, callback: watch)
    features = Features(world.runtime, world.registry)
    world.run(features.start())
    features.stop()
    features.stop()

    assert ended == [True]


def test_broker_that_stops_no_longer_tries_to_read_a_change(world, monkeypatch):
    """Its registry is closed by then."""
    tries = []

    async def fail(path):
        tries.append(path)
        raise SessionEndedError("over")

    world.features.stop()
    monkeypatch.setattr(world.registry, "get", fail)
    world.run(world.registry.create(FEATURE, encode_features({NAME: 2})))
    world.runtime.advance(10_000)
    count = len(tries)
    assert count > 1
    world.other.stop()
    world.runtime.advance(10_000)

    assert len(tries) == count


@pytest.mark.parametrize(("version", "supported"), [(3, []), (4, [(NAME, 0, 2)])])
def test_client_is_told_the_apis_and_the_features(world, version, supported):
    """Those with a lowest level of 0 only where it can read it; it names its software in turn."""
    world.update(2)
    handler = ApiVersionsHandler(lambda: [(1, 4, 18)], world.features)
    connection = SimpleNamespace(software=None)
    context = SimpleNamespace(api_version=version, connection=connection)
    body = ApiVersionsRequest(client_software_name="app", client_software_version="1.2")
    answer = handler.handle_api_versions(context, body)

    assert encode(answer, version)
    assert [(a.api_key, a.min_version, a.max_version) for a in answer.api_keys] == [(1, 4, 18)]
    assert [tuple(vars_of(each)) for each in answer.supported_features] == supported
    assert [tuple(vars_of(each)) for each in answer.finalized_features] == [(NAME, 2, 2)]
    assert (answer.finalized_features_epoch, connection.software) == (0, ("app", "1.2"))
    long = ApiVersionsRequest(client_software_name="a" * 257, client_software_version="1" * 30_000)
    assert handler.handle_api_versions(context, long).error_code == ErrorCode.NONE
    assert connection.software == ("a" * 256, "1" * 256), "each connection keeps it"
    refused = ApiVersionsRequest(client_software_name="-", client_software_version="1.2")
    assert handler.handle_api_versions(context, refused).error_code == ErrorCode.INVALID_REQUEST


def vars_of(message):
    """The values of a struct's fields, in their order."""
    return [getattr(message, field.name) for field in type(message).fields]


def test_nothing_is_changed_when_it_is_only_validated(world):
    """The answer says whether it could be."""
    assert world.update(2, validate_only=True) == 0
    assert world.update(3, validate_only=True) == INVALID
    assert world.features.finalized == {}


@pytest.mark.parametrize("version", [1, 2])
def test_request_that_makes_no_sense_is_refused(world, version):
    """A direction that does not exist."""
    assert world.update(2, 9, version=version) == ErrorCode.INVALID_REQUEST


def test_request_that_names_no_feature_is_refused(world):
    """In the place for the whole request."""
    body = UpdateFeaturesRequest()
    call = FeaturesHandler(world.features).handle_update_features
    answer = world.run(call(SimpleNamespace(api_version=2), body))

    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (b'{"version":1,"status":1,"features":{"x":{"min_version_level":1,"max_version_level":3}}}',
         {"x": 3}),
        (b'{"version":2,"status":1,"features":{"x":4}}', {"x": 4}),
    ],
)  # fmt: skip
def test_levels_that_kafka_wrote_are_read(world, data, levels):
    """In both versions of its JSON."""
    world.run(world.registry.create(FEATURE, data))

    assert world.features.finalized == levels


def test_broken_levels_are_refused_by_name(world):
    """The present levels stay."""
    world.update(2)
    world.run(world.registry.set(FEATURE, b"[]"))

    assert world.update(1, DOWN) == ErrorCode.FEATURE_UPDATE_FAILED
    assert world.other.finalized == {NAME: 2}
