"""Forms and addresses as browsers send them."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console.http_forms import LONGEST_PATH, MOST_FORM_BYTES, form_of, own_path
from ottla.console.refusals import Refused


def test_forms_are_bounded_and_read_as_text():
    """The token may come in a header."""

    def form(body: bytes, headers: dict[str, str]) -> dict[str, str]:
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return messages.pop()

        return asyncio.run(form_of(receive, headers, "t"))

    assert form(b"a=1&b=&csrf=t", {}) == {"a": "1", "b": ""}
    assert form(b"a=%00", {"x-csrf-token": "t"}) == {"a": "\0"}
    with pytest.raises(Refused, match="bytes"):
        form(b"a" * (MOST_FORM_BYTES + 1), {})
    with pytest.raises(Refused, match="UTF-8"):
        form(b"\xff=1", {})
    with pytest.raises(Refused, match="too many"):
        form(b"a=1&" * 300, {})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/t/a/records?q=b%26c", "/t/a/records?q=b%26c"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("https://evil.example", "/"),
        ("", "/"),
        ("/" + "a" * LONGEST_PATH, "/"),
    ],
)
def test_browser_is_led_to_paths_of_the_console_only(text, path):
    """A form cannot send it to another host."""
    assert own_path(text) == path
