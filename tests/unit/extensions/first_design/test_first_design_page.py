"""The bytes that the page draws are those that a broker takes, keeps and answers with."""

from __future__ import annotations

import re
from pathlib import Path

from byte_logs_world import entry
from first_design_client import SETTINGS, RawClient, feature

from ottla.protocol.first_design import ToAppend, ToRead, encode_fetch, encode_produce
from ottla.testing import InProcessBroker

PAGE = Path(__file__).parents[4] / "docs/concepts/first-design.md"
LINE = re.compile(r" *((?:[0-9a-f]{2} {1,2})+)")


def drawn(name: str) -> bytes:
    """The bytes at the beginning of each line of the block behind a mark."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"<!-- bytes of {name} -->\n```\n")
    lines = rest.partition("\n```")[0].splitlines()
    return b"".join(bytes.fromhex(LINE.match(line)[1]) for line in lines)


def test_bytes_of_a_produce_and_of_a_multi_fetch_are_those_of_the_page():
    """A broker keeps the messages of the page's produce, and answers its multi-fetch so."""
    with InProcessBroker(**SETTINGS) as broker, RawClient(broker) as client:
        client.socket.sendall(drawn("a produce"))
        client.wait_for_end(27)
        assert (
            broker.disk.contents("/data.first-design/pages_0/00000000000.kafka")
            == drawn("a produce")[-27:]
        )
        client.socket.sendall(drawn("a multi-fetch"))
        assert client.answer() == drawn("its answer")


def test_bytes_of_the_page_are_those_that_a_client_makes():
    """Two messages for pages, and the places from which they are read."""
    messages = entry(b"hello") + entry(b"bye", 1)
    places = [ToRead("pages", 0, 14, 1 << 20), ToRead("pages", 1, 99, 1 << 20)]

    assert encode_produce([ToAppend("pages", 0, messages)]) == drawn("a produce")
    assert encode_fetch(places) == drawn("a multi-fetch")


def test_program_of_the_page_prints_what_the_page_says(capsys):
    """Two messages, their ids, and where the log ends and begins."""
    with InProcessBroker(**SETTINGS) as broker:
        _, port = feature(broker).listener.address
        _, _, rest = PAGE.read_text(encoding="utf-8").partition("```python\n")
        program = rest.partition("```")[0].replace('"localhost", 9091', f'"127.0.0.1", {port}')
        exec(compile(program, str(PAGE), "exec"), {})

    assert capsys.readouterr().out == "0 b'/index.html'\n21 b'/about.html'\n[42, 0]\n"
