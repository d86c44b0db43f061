"""UpdateFeatures: which changes are made, and who hears of them."""

from types import SimpleNamespace

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.api_versions import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from ottla.protocol.message import encode
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import SessionEndedError
from ottla.registry.znodes import FEATURE, encode_features
from ottla.server.handlers.api_versions import Features, FeaturesHandler
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
    """And its epoch goes up with each change."""
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
