"""Features are attached to the broker whose settings want them, and to no other."""

from __future__ import annotations

import re

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.server import extension
from ottla.server.extension import EXTENSIONS, Extension, attach, late_families
from ottla.server.parts import Parts

ME = __name__


class Feature(Extension):
    """It does nothing."""


class Other(Extension):
    """Nor does it."""


def broker(**settings):
    named = {name.replace("_", "."): value for name, value in settings.items()}
    found = Parts()
    found.config = BrokerConfig.parse({"log.dirs": "/logs", **named})
    found.extensions = attach(found)
    return found


@pytest.fixture
def table(monkeypatch):
    """Two features; the second one is wanted by the broker's settings alone."""
    rows = {"ottla.audit.topic": f"{ME}:Feature", "broker.rack": f"{ME}:Other"}
    monkeypatch.setattr(extension, "EXTENSIONS", rows)
    return rows


def test_setting_with_a_value_wants_its_feature(table):
    """They stand in the order of the table; each is found by its class and by its name."""
    alone = broker(broker_rack="r1")
    both = broker(broker_rack="r1", ottla_audit_topic="audit")

    assert list(alone.extensions) == ["broker.rack"]
    assert alone.find(Other).broker is alone
    assert alone.find(Feature) is None
    assert [both.named(name) for name in ("Feature", "Other", "Gone")] == [
        both.find(Feature),
        both.find(Other),
        None,
    ]
    assert [type(each) for each in both.extensions.values()] == [Feature, Other]
    assert broker().extensions == {}


def test_feature_that_two_settings_want_is_attached_once(table):
    """It stands under the first of them."""
    table["ottla.audit.topic"] = table["broker.rack"]
    both = broker(broker_rack="r1", ottla_audit_topic="audit")

    assert list(both.extensions) == ["ottla.audit.topic"]


def test_feature_whose_folder_is_deleted_is_named_by_the_setting_that_wants_it(table):
    """A broker does not start without what its file asks for."""
    table["broker.rack"] = "ottla.extensions.gone.gone:Gone"
    message = "broker.rack needs ottla.extensions.gone.gone, which is not installed"

    with pytest.raises(ConfigError, match=re.escape(message)):
        broker(broker_rack="r1")


def test_feature_that_a_default_wants_may_be_deleted(table, caplog):
    """The broker's file does not ask for it; the log says what is missing."""
    table["log.cleaner.enable"] = "ottla.extensions.gone.gone:Gone"

    assert broker().extensions == {}
    assert "log.cleaner.enable needs ottla.extensions.gone.gone" in caplog.text


def test_setting_that_means_more_is_served_as_far_as_it_can_be(table, caplog, monkeypatch):
    """A broker of a cluster is more than the feature that is missing."""
    monkeypatch.setattr(extension, "MEANS_MORE", {"broker.rack"})
    table["broker.rack"] = "ottla.extensions.gone.gone:Gone"

    assert broker(broker_rack="r1").extensions == {}
    assert "broker.rack needs ottla.extensions.gone.gone" in caplog.text


def test_package_that_a_feature_lacks_is_no_missing_feature(table, tmp_path, monkeypatch):
    """The error names the package, as it would anywhere else."""
    (tmp_path / "feature_that_needs.py").write_text("import no_such_package\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    table["broker.rack"] = "feature_that_needs:Feature"

    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        broker(broker_rack="r1")


@pytest.mark.parametrize("setting", EXTENSIONS)
def test_every_row_of_the_table_names_a_setting(setting):
    """A setting of brokers."""
    assert setting in BrokerConfig.keys


def test_apis_of_a_feature_are_not_told_where_its_folder_is_deleted(table, monkeypatch):
    """A client sees which APIs there are; a request would be answered by nobody."""
    monkeypatch.setattr(extension, "FAMILIES", {"ottla.extensions.gone.gone:make": ()})

    assert list(late_families(broker())) == []


def test_hooks_are_few():
    """What needs an eleventh is no feature but a part of the core."""
    hooks = [name for name in vars(Extension) if not name.startswith("_")]

    assert len(hooks) <= 10
