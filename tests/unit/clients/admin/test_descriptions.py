"""What admin calls take and return, as a person reads it."""

from __future__ import annotations

import pytest

from ottla import AlterConfigOp, ConfigResource
from ottla.clients.admin.descriptions import ClusterDescription
from ottla.protocol.configs import ConfigResourceType
from ottla.structs import Node


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (AlterConfigOp("retention.ms", "5"), "name='retention.ms', value='5', op="),
        (AlterConfigOp("retention.ms", op="DELETE"), "value=None, op='DELETE'"),
        (AlterConfigOp("retention.ms", ""), "value='', op="),
    ],
)
def test_change_of_a_setting_shows_its_value(operation, expected):
    """The value is shown as it was given."""
    assert expected in repr(operation)


def test_secret_does_not_show():
    """Whatever prints the change."""
    operation = AlterConfigOp("listener.name.ssl.ssl.key.password", "top secret")

    assert "top secret" not in repr(operation)
    assert "ssl.key.password" in repr(operation)


@pytest.mark.parametrize(
    ("resource", "kind", "name"),
    [
        (ConfigResource.topic("pages"), ConfigResourceType.TOPIC, "pages"),
        (ConfigResource.broker(2), ConfigResourceType.BROKER, "2"),
        (ConfigResource.broker(None), ConfigResourceType.BROKER, ""),
        (ConfigResource.group("g"), ConfigResourceType.GROUP, "g"),
        (ConfigResource.client_metrics("s"), ConfigResourceType.CLIENT_METRICS, "s"),
    ],
)
def test_resources_have_a_kind_and_a_name(resource, kind, name):
    """All brokers together have the empty one."""
    assert resource == (kind, name)
    assert str(resource) == f"{kind.name.lower()} {name}"


@pytest.mark.parametrize(("controller_id", "expected"), [(1, Node(1, "h", 1)), (-1, None)])
def test_controller_is_one_of_the_brokers_or_none(controller_id, expected):
    """A cluster may have none for a while."""
    nodes = [Node(0, "g", 1), Node(1, "h", 1)]

    assert ClusterDescription("id", controller_id, nodes).controller == expected
