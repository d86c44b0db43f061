"""The file descriptors of a broker: most are for connections, the last ones for its files alone.

A client need not log in to have one, so without a reserve those who just connect could keep the
logs of everybody from opening their next segments.
"""

from __future__ import annotations

import resource
from typing import Final

MAX_RESERVED: Final = 1024
UNKNOWN_LIMIT: Final = 2**31 - 1


def max_open_files() -> int:
    """How many descriptors the system gives this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNKNOWN_LIMIT if soft == resource.RLIM_INFINITY else min(soft, UNKNOWN_LIMIT)


def reserve_of(max_descriptors: int) -> int:
    """How many are left to files: a quarter where there are few."""
    return min(MAX_RESERVED, max_descriptors // 4)


def is_of_reserve(fd: int, max_descriptors: int, client_count: int) -> bool:
    """Whether a new client has one of the last descriptors, and clients have as many already.

    The system gives the lowest number that is free: all below are in use.
    """
    reserve = reserve_of(max_descriptors)
    return client_count >= reserve and fd >= max_descriptors - reserve
