"""docs/operate/metrics.md as it stands: its commands, and the table of all metrics."""

from __future__ import annotations

import re
from pathlib import Path

from http_pages import metrics_of
from page import Page, Shell

from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker

PAGE = Page("docs/operate/metrics.md")
ROW = re.compile(r"^\| `(kafka[\w.]*:[^`]+)` \| (\w+) \| (.+) \|$", re.MULTILINE)


def test_commands_print_what_is_shown(tmp_path: Path) -> None:
    """A broker with metrics, its health, a page for Prometheus and one bean as JSON."""
    port, clients = str(free_port("127.0.0.1")), free_port("127.0.0.1")

    def translated(text: str) -> str:
        text = text.replace("9404", port).replace("/tmp/", f"{tmp_path}/")
        text = text.replace("localhost:9092", f"127.0.0.1:{clients}")
        listeners = f"--override listeners=PLAINTEXT://127.0.0.1:{clients}"
        return text.replace("ottla broker", f"ottla broker {listeners}")

    shell = Shell(tmp_path, translated)
    try:
        for command, shown in PAGE.conversations():
            if command.endswith("&"):
                shell.start(command.rstrip("& "))
            elif not command.startswith("pip"):
                assert shell.run(command) == shown, command
    finally:
        shell.close()


def test_table_has_every_metric_of_a_broker() -> None:
    """Name, kind and meaning; what only a cluster on ZooKeeper or Linux has stands below it."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        families = metrics_of(broker.broker).registry.families.values()
        there = {(each.name.bean(), each.kind.value, each.doc) for each in families}

    written = set(ROW.findall(PAGE.text))
    elsewhere = ("SessionExpireListener", "ZooKeeperClientMetrics", "linux-disk")
    elsewhere += ("DelegationTokens",)
    assert {row for row in written if not any(word in row[0] for word in elsewhere)} == there
