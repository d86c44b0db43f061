"""The examples of docs/use/clients.md, as they stand there."""

from __future__ import annotations

from page import Page


def test_examples_of_the_clients_page_run(start_broker):
    """From top to bottom, in one program, against a new broker."""
    address = start_broker().bootstrap_servers

    count = Page("docs/use/clients.md").run_python(
        lambda text: text.replace("localhost:9092", address)
    )

    assert count >= 12
