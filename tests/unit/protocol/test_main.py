"""`python -m ottla.protocol`."""

from __future__ import annotations

import pytest

from ottla.protocol.__main__ import main, messages
from ottla.protocol.api_keys import MESSAGES


def test_list_prints_every_api(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, with key, versions and the first flexible version."""
    assert main(["list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(MESSAGES)
    assert lines[1].split() == ["0", "Produce", "0-13", "9+", "protocol.produce"]


def test_show_prints_both_functions(capsys: pytest.CaptureFixture[str]) -> None:
    """The source is valid Python."""
    assert main(["show", "ProduceRequest", "9"]) == 0

    source = capsys.readouterr().out
    assert "def decode(buffer, pos, left=" in source
    assert "def encode(m, out, parts):" in source
    compile(source, "<shown>", "exec")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "Nonsense", "0"], "there is no message Nonsense"),
        (["show", "ProduceRequest", "14"], "ProduceRequest has versions 0-13, not 14"),
        (["show", "ProduceRequest", "x"], "invalid int value"),
        ([], "required"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is that of a usage error."""
    with pytest.raises(SystemExit) as raised:
        main(arguments)

    assert raised.value.code == 2
    assert told in capsys.readouterr().err


def test_every_message_has_a_name_of_its_own() -> None:
    """Requests and responses of all APIs, and the embedded messages."""
    names = messages()

    served = [name for name in names if name.endswith(("Request", "Response"))]
    assert len(served) == 2 * len(MESSAGES)
    assert {"FetchResponse", "ConsumerProtocolAssignment", "GroupMetadataValue"} < set(names)
