"""docs/operate/operations.md: classic advice on running brokers, with true names and numbers."""

from __future__ import annotations

import importlib
import re

import pytest
from page import ROOT, Page, Shell

from ottla.config.broker_config import BrokerConfig

PAGE = Page("docs/operate/operations.md")
ADVICE = [
    ("Memory", "There is no JVM"),
    ("Memory", "bytes written in a second x 30"),
    ("Open files", "partitions x (bytes of a partition / segment.bytes) + connections"),
    ("Open files", "vm.max_map_count"),
    ("The network", "net.core.rmem_max"),
    ("Disks", "one RAID"),
    ("Flushing", "`log.flush.interval.messages` and `log.flush.interval.ms` unset"),
    ("How Linux writes dirty pages", "vm.dirty_background_ratio = 5"),
    ("File system and mount options", "`noatime`"),
    ("File system and mount options", "XFS first, then ext4"),
    ("Systems", "other Unix systems"),
    ("Disks", "python -m benchmarks disk"),
    ("How Linux writes dirty pages", "/proc/meminfo"),
    ("Several sites", "Do not stretch one cluster over several sites"),
    ("Several sites", "Each site has a cluster of its own"),
    ("The network", "bandwidth x round trip"),
]


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    _, _, rest = PAGE.text.partition(f"# {title}\n")
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(("title", "words"), ADVICE)
def test_advice_stands_in_its_section(title, words):
    """A piece of advice is found where its heading promises it."""
    text = " ".join(section(title).split())

    assert words.casefold() in text.casefold()


def test_settings_on_the_page_exist():
    """What the page tells an operator to set can be set."""
    pages = (ROOT / "docs/operate/configuration").glob("*.md")
    reference = "".join(page.read_text(encoding="utf-8") for page in pages)
    known = set(re.findall(r"^### `([\w.-]+)`", reference, re.MULTILINE))
    named = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)(?:=[\w]+)?`", PAGE.text))
    outside = {"listeners", "log.dirs", *BrokerConfig.unused} | {
        name for name in named if name.startswith(("vm.", "net."))
    }

    assert len(named) > 15
    assert named - outside <= known


def test_flushing_is_left_to_the_system():
    """As the page says, the defaults flush neither by count nor by age."""
    config = BrokerConfig.parse({})

    assert config.log_flush_interval_messages == 2**63 - 1
    assert config.log_flush_interval_ms is None or config.log_flush_interval_ms == 2**63 - 1


def test_buffers_of_sockets_are_for_one_site():
    """The sizes from which the page computes a throughput of 1 MB/s are the defaults."""
    config = BrokerConfig.parse({})

    assert config.socket_send_buffer_bytes == -1
    assert config.socket_receive_buffer_bytes == 100 * 1024


@pytest.mark.parametrize("name", re.findall(r"`python -m benchmarks (\w+)`", PAGE.text))
def test_benchmarks_on_the_page_exist(name):
    """Each figure can be measured again by the command beside it."""
    assert importlib.import_module(f"benchmarks.bench_{name}").main


def test_commands_on_the_page_run(tmp_path):
    """What the page shows as typed is typed."""
    shell = Shell(tmp_path, lambda text: text)
    commands = [command for command, _ in PAGE.conversations()]

    assert commands
    for command in commands:
        assert any("Dirty" in line for line in shell.run(command))
    shell.close()
