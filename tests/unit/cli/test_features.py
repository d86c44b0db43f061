"""`ottla features`."""

import pytest

from ottla.clients.admin.features import FeatureDescription
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.features import UpgradeType

NAME = "transaction.version"
UP, DOWN, UNSAFE = UpgradeType


@pytest.fixture
def cluster(admin):
    """A cluster whose admin client keeps what was asked for, and refuses level 9."""

    def update(levels, direction, validate_only):
        if 9 in levels.values():
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "no level 9")
        admin.changes.append((levels, direction, validate_only))

    admin.update_features = update
    admin.describe_features = lambda: {NAME: FeatureDescription(0, 2, 0, -1)}
    return admin


def test_features_are_described_as_kafka_does(tool, cluster):
    """A dash for the epoch while nothing was ever in force."""
    fields = f"Feature: {NAME}|SupportedMinVersion: 0|SupportedMaxVersion: 2"
    assert tool("features", "describe").lines == [
        f"{fields}|FinalizedVersionLevel: 0|Epoch: -".replace("|", "\t")
    ]
    cluster.describe_features = lambda: {NAME: FeatureDescription(0, 2, 2, 4)}
    assert tool("features", "describe").lines == [
        f"{fields}|FinalizedVersionLevel: 2|Epoch: 4".replace("|", "\t")
    ]


@pytest.mark.parametrize(
    ("words", "change", "line"),
    [
        ("upgrade --feature x=2", ({"x": 2}, UP, False), "x was upgraded to 2."),
        ("upgrade --feature x=2 --dry-run", ({"x": 2}, UP, True), "x can be upgraded to 2."),
        ("downgrade --feature x=1", ({"x": 1}, DOWN, False), "x was downgraded to 1."),
        ("downgrade --feature x=1 --unsafe", ({"x": 1}, UNSAFE, False), "x was downgraded to 1."),
        ("disable --feature x", ({"x": 0}, DOWN, False), "x was disabled."),
    ],
)
def test_levels_are_changed(tool, cluster, words, change, line):
    """In the direction that the action names."""
    outcome = tool("features", *words.split())

    assert (outcome.status, outcome.lines) == (0, [line])
    assert cluster.changes == [change]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("upgrade --feature x=9", "Could not upgrade x to 9. no level 9"),
        ("upgrade --feature x=9 --dry-run", "Can not upgrade x to 9. no level 9"),
    ],
)
def test_change_that_is_refused_is_named(tool, cluster, words, line):
    """The line has the broker's reason."""
    outcome = tool("features", *words.split())

    assert outcome.status == 1
    assert line in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("describe --feature x=1", "--feature cannot be used with describe"),
        ("upgrade", "missing required option --feature"),
        ("upgrade --feature x=2 --unsafe", "--unsafe cannot be used with upgrade"),
        ("upgrade --feature x=two", "takes a name and a level, as in x=1, not 'two'"),
        ("forget", "not 'forget'"),
    ],
)
def test_options_that_do_not_fit_are_refused(tool, cluster, words, complaint):
    """Before any broker is asked."""
    outcome = tool("features", *words.split())

    assert outcome.status == 1
    assert complaint in outcome.err
    assert not cluster.changes
