"""An application's settings of clients, which go to clients of several kinds."""

from __future__ import annotations

import errno
from contextlib import nullcontext

import pytest

from ottla import Admin, NewTopic
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.runtime import local_disk
from ottla.streams import Streams
from ottla.streams.application import STARTED
from ottla.streams.reset import Reset
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


def test_two_instances_do_not_share_a_folder(tmp_path):
    """Each would replace the files of the other, in this process or in another one."""
    one, other = (Streams("app", "localhost:1", state_dir=tmp_path) for _ in range(2))
    elsewhere = Streams("app", "localhost:1", state_dir=tmp_path / "own")
    one._hold_folder()
    elsewhere._hold_folder()

    for start in (other.start, other.run_once, other.run):
        with pytest.raises(ValueError, match=f"an instance of app runs in {tmp_path}/app: another"):
            start()
    one.stop()
    other._hold_folder()
    with pytest.raises(ValueError, match="an instance of app runs in"):
        one.start()
    del other, start  # as where a program has lost it
    one._hold_folder()


def test_folder_of_an_instance_that_has_ended_is_free(tmp_path):
    """Its queries may have failed, and nobody has stopped it: a cell of a notebook is run again."""
    one, other = (Streams("app", "localhost:1", state_dir=tmp_path) for _ in range(2))
    STARTED[one.folder] = one
    one._hold_folder()

    other._hold_folder()

    assert one._lock is None


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_file_system_without_locks_is_used_all_the_same(application, monkeypatch, code):
    """Other errors of it are told."""

    def refuse(*_):
        raise OSError(code, "no")

    monkeypatch.setattr(local_disk.fcntl, "flock", refuse)

    with nullcontext() if code != errno.EIO else pytest.raises(OSError, match="lock"):
        application._hold_folder()


def test_folder_in_use_is_not_reset(tmp_path):
    """Nothing is deleted, and the command says why."""
    application = Streams("app", "localhost:1", state_dir=tmp_path)
    with InProcessBroker() as broker, Admin(broker.bootstrap_servers) as admin:
        broker.create_topic("app-x-repartition")
        application._hold_folder()
        reset = Reset.plan(admin, "app", tmp_path)
        with pytest.raises(ValueError, match="an instance of app runs in"):
            reset.carry_out(admin)
        assert broker.topics() == ["app-x-repartition"]
        application.stop()
        reset.carry_out(admin)

        assert broker.topics() == []
        assert not application.folder.exists()
