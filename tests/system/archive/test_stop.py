"""The stop scripts of the archive: they end all servers of this installation, and no others.

It runs after the rows, since the brokers that these share end here.
"""

from __future__ import annotations

import os
from pathlib import Path

from ottla.cli.local_servers import server_processes
from ottla.testing import wait_until


def test_servers_in_the_background_are_stopped(reader):
    """-daemon, the file that it writes to, and the scripts that stop brokers and ZooKeeper."""
    log = reader.folder / "logs" / "kafkaServer.out"
    reader.types(
        "bin/kafka-server-start.sh -daemon config/server-alone.properties "
        "--override broker.id=99 --override listeners=PLAINTEXT://127.0.0.1:0 "
        "--override log.dirs=/tmp/kafka-logs-99"
    )
    wait_until(lambda: " is ready at " in log.read_text(), "the server in the background")
    zookeeper, *others = reader.shell.started
    brokers = [each for each in others if "kafka-server-start" in str(each.args)]

    reader.types("bin/kafka-server-stop.sh")

    for process in brokers:
        process.wait(60)
    programs = str(reader.folder / ".venv" / "bin")
    wait_until(
        lambda: not list(server_processes("broker", Path("/proc"), programs, os.getuid())),
        "the server in the background to end",
    )
    assert "broker 99 is stopping" in log.read_text()
    assert zookeeper.poll() is None
    assert reader.fails("bin/kafka-server-stop.sh") == "No kafka server to stop\n"
    reader.types("bin/zookeeper-server-stop.sh")
    zookeeper.wait(60)
    assert reader.fails("bin/zookeeper-server-stop.sh") == "No zookeeper server to stop\n"
