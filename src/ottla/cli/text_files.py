"""Files of text that users name."""

from __future__ import annotations

from typing import Final

from ottla.cli.command_error import CommandError

MOST_BYTES: Final = 256 * 1024 * 1024
"""Devices such as /dev/zero have no end, and what is read stays in memory."""


def read_text(path: str, kind: str = "") -> str:
    """The text of a file; CommandError, with its name and what it is, if it cannot be read."""
    from pathlib import Path  # a start does without

    what = f"{kind} {path}".strip()
    if not path:
        raise CommandError(f"{kind or 'a file'} has an empty name")
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise CommandError(f"cannot read {what}: it has more than {MOST_BYTES} bytes")
        text = data.decode("utf-8-sig")  # some editors begin it with a mark
    except OSError as error:
        raise CommandError(f"cannot read {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{what} is not UTF-8 text: {error.reason}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
