"""What the clients have in common as context managers: leaving the block closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosedOnExit(ABC):
    """A client that `with` closes, however the block ends; what the block raises goes on."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Give everything back that the client holds. Closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
