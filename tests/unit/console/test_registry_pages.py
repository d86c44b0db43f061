"""The registry's tree, as a broker shows it beside its metrics."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from visitor import Visitor, visit

from ottla import Admin
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.console.refusals import NotFound, Refused
from ottla.console.registry_pages import node_of, request_of, way_to
from ottla.extensions.measures.measures import Measures
from ottla.runtime.http_calls import HttpAnswer
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def broker():
    """A broker with metrics, a topic and a user."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        running.create_topic("orders", 2)
        with Admin(running.bootstrap_servers) as admin:
            credential = UserScramCredential("ann", "SCRAM-SHA-512", "a secret of ann's")
            admin.alter_user_scram_credentials([credential])
        yield running


def metrics(broker: InProcessBroker) -> tuple[str]:
    measures = broker.broker.find(Measures)
    assert measures is not None
    assert measures.listener is not None
    return (f"{measures.listener.end_point}/metrics",)


def test_nodes_are_walked_from_the_root(broker):
    """Each with its data as JSON, its version and the nodes below it."""

    async def walk(visitor: Visitor) -> None:
        root = (await visitor.get("/registry.json")).json
        assert {"brokers", "config", "controller"} <= {each["name"] for each in root["children"]}
        page = await visitor.get(f"/registry?path={quote('/brokers/topics/orders')}")
        assert 'href="/registry?path=%2Fbrokers%2Ftopics"' in page.text
        found = (await visitor.get("/registry.json?path=/brokers/topics/orders")).json
        assert json.loads(found["node"]["data"])["partitions"].keys() == {"0", "1"}
        assert found["node"]["version"] == 0
        assert (await visitor.get("/registry.csv?path=/brokers/topics")).text.startswith(
            "name,path\r\norders,/brokers/topics/orders\r\n"
        )
        assert (await visitor.get("/registry?path=/nothing")).status == 404
        assert (await visitor.get("/registry?path=nothing")).status == 400

    visit(broker.bootstrap_servers, walk, metrics=metrics(broker))


def test_another_broker_is_asked_where_one_has_no_node(broker):
    """It does not run, or is no broker of Ottla; the reason is the first one where none has."""
    nowhere = "http://127.0.0.1:1/metrics"

    async def found(visitor: Visitor) -> None:
        node = (await visitor.get("/registry.json?path=/brokers/topics")).json
        assert node["broker"] == metrics(broker)[0]
        assert (await visitor.get("/registry?path=/nothing")).status == 404
        assert (await visitor.get("/registry?path=nothing")).status == 400

    async def missed(visitor: Visitor) -> None:
        answer = await visitor.get("/registry")
        assert answer.status == 502
        assert f"{nowhere}: Connection refused" in answer.text

    visit(broker.bootstrap_servers, found, metrics=(nowhere, *metrics(broker)))
    visit(broker.bootstrap_servers, missed, metrics=(nowhere, "http://127.0.0.1:2/metrics"))


def test_credentials_are_hidden(broker):
    """The names of mechanisms are there, and no value."""

    async def walk(visitor: Visitor) -> None:
        found = (await visitor.get("/registry.json?path=/config/users/ann")).json
        assert json.loads(found["node"]["data"])["config"] == {"SCRAM-SHA-512": "[hidden]"}
        page = (await visitor.get("/registry?path=/config/users/ann")).text
        assert "stored_key" not in page

    visit(broker.bootstrap_servers, walk, metrics=metrics(broker))


def test_way_leads_from_the_root():
    """Names with signs of addresses stay names; the name and password are kept."""
    assert [each.path for each in way_to("/a/b")] == ["/", "/a", "/a/b"]
    assert request_of("http://u:p@h:1/metrics?x=1", "/a&b").url == (
        "http://u:p@h:1/registry?path=/a%26b"
    )


def test_listener_without_password_shows_it_to_its_own_machine(broker):
    """And users who log in to a console have no such page."""
    with InProcessBroker(metrics_listener="http://0.0.0.0:0") as open_to_all:
        (url,) = metrics(open_to_all)
        url = url.replace("0.0.0.0", "127.0.0.1")

        async def walk(visitor: Visitor) -> tuple[int, str]:
            answer = await visitor.get("/registry.json")
            return answer.status, answer.json["error"]

        status, reason = visit(broker.bootstrap_servers, walk, metrics=(url,))
    assert (status, "metrics.listener.username" in reason) == (403, True)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b'{"error": "there is no node /x"}', NotFound),
        (503, b'{"error": "the broker starts"}', Refused),
        (404, b"404: Not Found", Refused),
        (200, b"# HELP x", Refused),
        (200, b"[]", Refused),
        (200, b'{"error": "none"}', Refused),
        (200, b'{"children": 5}', Refused),
        (200, b'{"children": [5]}', Refused),
        (200, b'{"children": [], "data": {}}', Refused),
        (200, b'{"children": [], "version": null}', Refused),
        (200, b'{"children": [], "is_hidden": 5}', Refused),
    ],
)
def test_other_answers_are_reasons(status, body, error):
    """Such as those of a JMX exporter."""
    with pytest.raises(error):
        node_of(HttpAnswer(status, "", body), "http://h:1/metrics")
