"""JMX_PORT and KAFKA_JMX_OPTS: what each server does with them."""

from __future__ import annotations

import sys

import pytest

from ottla.cli import jmx_options
from ottla.cli.cluster_servers import Server
from ottla.cli.command_error import CommandError
from ottla.cli.server_process import Child
from ottla.cli.zookeeper_server import ZooKeeperServer
from ottla.config.broker_config import BrokerConfig

REMOTE = "-Dcom.sun.management.jmxremote"
KAFKAS_DEFAULT = f"{REMOTE} {REMOTE}.authenticate=false  {REMOTE}.ssl=false"


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """The machine's own environment says nothing."""
    for name in ("JMX_PORT", "KAFKA_JMX_OPTS", "KAFKA_HEAP_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def started(monkeypatch):
    """The settings with which brokers were started; none is started for real."""
    configs: list[BrokerConfig] = []
    monkeypatch.setattr(
        "ottla.cli.broker.run_broker", lambda config, on_ready=None: configs.append(config) or 0
    )
    return configs


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({"JMX_PORT": "9999"}, 9999),
        ({"JMX_PORT": " 9999 ", "KAFKA_JMX_OPTS": KAFKAS_DEFAULT}, 9999),
        ({"KAFKA_JMX_OPTS": f"{REMOTE} {REMOTE}.port=9998 {REMOTE}.rmi.port=9998"}, 9998),
        ({"JMX_PORT": "9999", "KAFKA_JMX_OPTS": f"{REMOTE}.port=1"}, 9999),
        ({"JMX_PORT": "9999", "KAFKA_JMX_OPTS": "-Djava.rmi.server.hostname=10.0.0.1"}, 9999),
        ({"KAFKA_JMX_OPTS": KAFKAS_DEFAULT}, None),
        ({"JMX_PORT": "", "KAFKA_JMX_OPTS": ""}, None),
        ({}, None),
    ],
)
def test_broker_serves_metrics_at_the_port_to_this_machine(
    ottla, started, monkeypatch, variables, port
):
    """The broker says where it serves metrics; without a port it serves none, as in Kafka."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    outcome = ottla("broker", "--log-level", "INFO")
    assert outcome.status == 0
    found = started[0].metrics_listener
    assert (found and str(found)) == (port and f"http://127.0.0.1:{port}")
    lines = [line for line in outcome.err.splitlines() if "no JMX in Python" in line]
    assert len(lines) == (port is not None)
    assert all(f"http://127.0.0.1:{port}, to this machine alone" in line for line in lines)


def test_own_metrics_listener_wins(ottla, started, monkeypatch):
    """With a line; the variable may be of another process in the same shell."""
    monkeypatch.setenv("JMX_PORT", "9999")
    own = "http://127.0.0.1:9404"

    outcome = ottla("broker", "--override", f"metrics.listener={own}")
    assert outcome.status == 0
    assert str(started[0].metrics_listener) == own
    assert f"JMX_PORT=9999 is passed over, as metrics.listener={own} is set" in outcome.err


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"JMX_PORT": "abc"}, "JMX_PORT=abc: must be a port"),
        ({"JMX_PORT": "65536"}, "JMX_PORT=65536: must be a port"),
        ({"JMX_PORT": "-1"}, "JMX_PORT=-1: must be a port"),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.port="}, ""),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.port=x"}, "jmxremote.port=x: must be a port"),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.ssl=true"}, "jmxremote.ssl cannot be followed"),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.authenticate=true"}, "authenticate cannot be followed"),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.password.file=/a"}, "password.file cannot be followed"),
        ({"KAFKA_JMX_OPTS": "-Djavax.net.ssl.keyStore=/a"}, "keyStore cannot be followed"),
        ({"KAFKA_JMX_OPTS": "-javaagent:/a.jar=7071:b.yml"}, "cannot be followed"),
        ({"KAFKA_JMX_OPTS": "'"}, "KAFKA_JMX_OPTS: cannot be read"),
    ],
)
def test_what_cannot_be_followed_stops_the_start(ottla, started, monkeypatch, variables, complaint):
    """The option is named, and what to set in its place; an empty port asks for nothing."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    outcome = ottla("broker")

    assert (outcome.status == 0) == (complaint == "")
    assert complaint in outcome.err
    assert len(started) == (complaint == "")
    assert ("metrics.listener=https://" in outcome.err) == ("followed" in complaint)


def test_mirror_has_it_too(ottla, monkeypatch, tmp_path):
    """As connect-mirror-maker.sh; its plan is of the same settings."""
    monkeypatch.setenv("JMX_PORT", "abc")
    (tmp_path / "mm2.properties").write_text("clusters=a,b\na->b.enabled=true\n")

    outcome = ottla("mirror", tmp_path / "mm2.properties")
    assert outcome.status == 1
    assert "JMX_PORT=abc: must be a port" in outcome.err
    monkeypatch.setenv("JMX_PORT", "9999")
    found = jmx_options.metrics_listener({})
    assert found == {"metrics.listener": "http://127.0.0.1:9999"}


def test_worker_of_connect_says_where_its_metrics_are(monkeypatch, caplog):
    """They are at its REST API."""
    jmx_options.note_metrics_at("http://127.0.0.1:8083")
    assert caplog.records == []

    monkeypatch.setenv("JMX_PORT", "9999")
    jmx_options.note_metrics_at("http://127.0.0.1:8083")
    assert "JMX_PORT=9999 is passed over" in caplog.text
    assert "http://127.0.0.1:8083/metrics" in caplog.text


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, []),
        ({"KAFKA_JMX_OPTS": f"{REMOTE}.ssl=true -Da='b c'"}, [f"{REMOTE}.ssl=true", "-Da=b c"]),
        (
            {"KAFKA_JMX_OPTS": f"{REMOTE}.ssl=true", "JMX_PORT": "9999"},
            [f"{REMOTE}.ssl=true", f"{REMOTE}.port=9999"],
        ),
        (
            {"JMX_PORT": "9999"},
            [
                REMOTE,
                f"{REMOTE}.host=127.0.0.1",
                "-Djava.rmi.server.hostname=127.0.0.1",
                f"{REMOTE}.authenticate=false",
                f"{REMOTE}.ssl=false",
                f"{REMOTE}.port=9999",
            ],
        ),
    ],
)
def test_zookeeper_gets_what_kafkas_script_gives_it(monkeypatch, tmp_path, variables, expected):
    """It is Java; without options of the user's nobody but this machine gets in."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    command = ZooKeeperServer({})._command(tmp_path / "java", tmp_path)

    assert [word for word in command if word.startswith("-D")][1:] == expected
    assert command[1] == "-Xmx512M"


def test_servers_of_a_cluster_do_not_fight_for_the_port(monkeypatch, tmp_path):
    """None of them gets the variables; the cluster has said that they are passed over."""
    monkeypatch.setenv("JMX_PORT", "9999")
    monkeypatch.setenv("KAFKA_JMX_OPTS", REMOTE)
    monkeypatch.setattr(
        Child,
        "command",
        [
            sys.executable,
            "-c",
            "import os, sys; sys.exit(len({'JMX_PORT', 'KAFKA_JMX_OPTS'} & set(os.environ)))",
        ],
    )
    child = Child(Server("a server", "broker", 0, tmp_path / "server.properties", {}))
    with child.process.stdout:
        assert child.process.wait(60) == 0
    assert jmx_options.given() == ["JMX_PORT", "KAFKA_JMX_OPTS"]


def test_variables_that_are_whole_lines_of_a_shell_are_read(monkeypatch):
    """Quotes are the shell's, as Kafka's scripts leave them to it."""
    monkeypatch.setenv("KAFKA_JMX_OPTS", "-Da='b")
    with pytest.raises(CommandError, match="cannot be read"):
        jmx_options.java_options()
