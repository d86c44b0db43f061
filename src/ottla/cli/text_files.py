"""Files of text that users name."""

from __future__ import annotations

from ottla.cli.command_error import CommandError


def read_text(path: str, kind: str = "") -> str:
    """The text of a file; CommandError, with its name and what it is, if it cannot be read."""
    from pathlib import Path  # a start does without

    what = f"{kind} {path}".strip()
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # some editors begin it with a mark
    except OSError as error:
        raise CommandError(f"cannot read {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{what} is not UTF-8 text: {error.reason}") from None
