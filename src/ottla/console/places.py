"""Places for work that lasts as long as a browser likes, shared by the users of a console."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.console.refusals import TOO_MANY, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Places:
    """So many at once, and fewer for one user: nobody keeps all the others out."""

    def __init__(self, most: int, of_user: int, work: str) -> None:
        """`work` says in a refusal which work has no place, such as "exports run"."""
        self._most = most
        self._of_user = of_user
        self._work = work
        self._taken: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many are taken."""
        return self._taken.total()

    def _check(self, user: str) -> None:
        of_user, all_taken = self._taken[user], self.count
        if of_user >= self._of_user:
            raise Refused(f"{of_user} {self._work} already: end one of them.", TOO_MANY)
        if all_taken >= self._most:
            raise Refused(f"{all_taken} {self._work} already: wait for one of them.", TOO_MANY)

    @contextmanager
    def taken(self, user: str) -> Iterator[None]:
        """Take a place for as long as the block runs; raises Refused where there is none."""
        self._check(user)
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            if not self._taken[user]:
                del self._taken[user]
