"""Which jars a ZooKeeper server is started with."""

from __future__ import annotations

import pytest

from ottla.cli.zookeeper_server import JARS_VARIABLE, class_path

NAMES = ("zookeeper-3.9.5.jar", "zookeeper-jute-3.9.5.jar", "slf4j-api-2.0.17.jar")


@pytest.fixture
def jars(tmp_path, monkeypatch):
    """A folder with those of ZooKeeper, and with others."""
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    for name in (*NAMES, "zookeeper-shaded.jar", "netty-all-4.2.13.Final.jar"):
        (tmp_path / name).touch()
    return tmp_path


def test_plain_server_gets_what_it_needs(jars):
    """No jar of the others is looked through."""
    found = class_path(jars, ["clientPort=2181\n", "server.1=a:2888:3888\n", "-Xmx512M"])

    assert sorted(found.split(":")) == sorted(str(jars / name) for name in NAMES)


@pytest.mark.parametrize(
    "line",
    [
        "secureClientPort=2281",
        "sslQuorum=true",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x=org.example.Own",
        "metricsProvider.className=org.example.Metrics",
        "admin.enableServer=true",
        "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
    ],
)
def test_other_servers_get_all(jars, line):
    """Their classes are in jars that are not told apart here."""
    assert class_path(jars, ["clientPort=2181", line]) == f"{jars}/*"


def test_folder_that_is_there_for_zookeeper_is_taken_whole(jars, monkeypatch):
    """Whoever has put jars there has meant them."""
    monkeypatch.setenv(JARS_VARIABLE, str(jars))

    assert class_path(jars, []) == f"{jars}/*"
