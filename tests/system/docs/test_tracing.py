"""The examples of docs/use/tracing.md, as they stand there."""

from __future__ import annotations

from page import Page


def test_examples_of_the_tracing_page_run(start_broker, capsys):
    """From top to bottom, in one program; the spans that are printed are those of one trace."""
    address = start_broker().bootstrap_servers
    count = Page("docs/use/tracing.md").run_python(
        lambda text: text.replace("localhost:9092", address)
    )
    printed = [line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines()]

    assert [name for name, _ in printed] == [
        "checkout INTERNAL",
        "send orders PRODUCER",
        "process orders CONSUMER",
    ]
    assert len({trace_id for _, trace_id in printed}) == 1
    assert count == 4
