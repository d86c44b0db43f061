"""An application's settings of clients, which go to clients of several kinds."""

from __future__ import annotations

import pytest

from ottla import Admin, NewTopic
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.streams import Streams
from ottla.testing import InProcessBroker

CLIENT = {
    "session.timeout.ms": "10000",
    "linger.ms": "5",
    "security.protocol": "PLAINTEXT",
    "default.api.timeout.ms": "9000",
}


@pytest.fixture
def application(tmp_path):
    return Streams("app", "localhost:9092", state_dir=tmp_path, client=CLIENT)


@pytest.mark.parametrize("table", [AdminConfig, ConsumerConfig, ProducerConfig])
def test_clients_of_a_kind_get_what_they_know(application, table, caplog):
    """A setting that is another kind's is no mistake, and no line is logged about it."""
    settings = application._settings_of(table)
    table.parse(settings)

    assert settings["security.protocol"] == "PLAINTEXT"
    assert settings["bootstrap.servers"] == "localhost:9092"
    assert settings.keys() - {"bootstrap.servers"} == CLIENT.keys() & table.keys.keys()
    assert caplog.records == []


def test_setting_that_no_client_knows_is_left_to_be_told(tmp_path):
    """As each client tells of a name that is misspelt."""
    application = Streams("app", "localhost:9092", state_dir=tmp_path, client={"a.b": "c"})

    assert application.source_options["kafka.a.b"] == "c"


def test_two_instances_may_start_at_the_same_time(tmp_path, monkeypatch):
    """Each finds the topics that it writes, whichever of the two has created them."""
    listed = Admin.list_topics

    def list_and_lose(admin):
        found = listed(admin)
        admin.create_topics(NewTopic(name, 1) for name in ("out", "x") if name not in found)
        return found

    with InProcessBroker() as broker:
        application = Streams("app", broker.bootstrap_servers, state_dir=tmp_path)
        for topic in ("out", "other", "out"):
            application.stream("in").to(topic)
        monkeypatch.setattr(Admin, "list_topics", list_and_lose)

        application._prepare()

        assert broker.topics() == ["other", "out", "x"]
