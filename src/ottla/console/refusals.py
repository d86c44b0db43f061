"""Why a page is not shown, or a change not made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

TOO_MANY: Final = 429
"""The status of a refusal that some time helps against."""
REMADE: Final = "was deleted and made again since the plan was shown"


class NotFound(Exception):
    """There is no such thing; `near` are the paths and names of things with similar names."""

    def __init__(self, message: str, near: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.near = dict(near or {})


class Refused(Exception):
    """The page or the change is not possible, for a reason that the user can change."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
