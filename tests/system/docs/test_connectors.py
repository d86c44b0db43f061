"""docs/use/connectors.md as it stands: logs of hosts, a topic, and files of its records."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from page import ROOT, Page, Shell

from ottla.connect.plugins import BUILT_IN, CONNECTORS, PREDICATES, TRANSFORMS, Plugins
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker, wait_until

PAGE = Page("docs/use/connectors.md")
BASIC = ("name", "connector.class", "topics", "key.converter", "value.converter")


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A folder with the page's files and the archive's config, and a broker."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for _, block in PAGE.blocks():
        if name := re.match(r"# (\S+\.\w+)\n", block):
            (tmp_path / name[1]).write_text(block.replace("file://lake", f"file://{tmp_path}/lake"))
    with InProcessBroker() as broker:
        worker = tmp_path / "config" / "connect-standalone.properties"
        worker.write_text(
            worker.read_text()
            .replace("localhost:9092", broker.bootstrap_servers)
            .replace("/tmp/connect.offsets", str(tmp_path / "offsets"))
            .replace(
                "#listeners=http://127.0.0.1:8083",
                f"listeners=http://127.0.0.1:{free_port('127.0.0.1')}",
            )
        )
        shell = Shell(tmp_path, str)
        # The wheel is made by the setuptools that is there: a test fetches nothing.
        shell.environment |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
        shell.environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        yield shell
        shell.close()


@pytest.mark.wide
def test_page_on_connectors_is_true(shell: Shell) -> None:
    """From top to bottom: what is typed brings forth what is shown, in the end."""
    for command, shown in PAGE.conversations():
        if command.endswith("&"):
            shell.begin(command.rstrip("& "))
            assert shell.folder is not None
            wait_until((shell.folder / "lake").exists, "the first file of the sink")
        elif not shown:
            shell.run(command)
        else:
            wait_until(
                lambda command=command, shown=shown: shell.run(command) == shown,
                command,
                seen=lambda command=command: shell.run(command),
            )


def test_names_on_the_page_are_those_of_the_plug_ins() -> None:
    """Every connector, transform and predicate is named, and the examples can be read."""
    names = {name.rpartition(".")[2].partition("$")[0] for name in BUILT_IN[TRANSFORMS]}
    names |= {name.rpartition(".")[2] for name in BUILT_IN[PREDICATES]}
    names |= {place.partition(":")[2] for place in BUILT_IN[CONNECTORS].values()}
    plugins = Plugins()

    assert not [name for name in names if f"`{name}`" not in PAGE.text]
    blocks = [properties(text) for text in PAGE.blocks_in("properties")]
    transforms = next(block for block in blocks if "transforms" in block)
    for block in blocks:
        if "connector.class" in block:
            if block["connector.class"] == "inbox":
                continue  # of the wheel, which is tried above
            connector = plugins.connector(block["connector.class"])
            own = {name: block[name] for name in connector.Settings.keys if name in block}
            assert connector.Settings.parse(own)
            assert set(block) - set(own) <= set(BASIC), block
    for group, alias in ((TRANSFORMS, "hide"), (TRANSFORMS, "route"), (PREDICATES, "tests")):
        prefix = f"{group}.{alias}."
        own = {
            key.removeprefix(prefix): transforms[key]
            for key in transforms
            if key.startswith(prefix)
        }
        own.pop("predicate", None)
        assert plugins.find(group, own.pop("type")).of(own)
