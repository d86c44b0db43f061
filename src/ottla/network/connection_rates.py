"""How fast clients may connect."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from ottla.network.rate import Rate
from ottla.network.socket_config import SocketConfig
from ottla.runtime import Clock

MAX_IDLE_RATES: Final = 1024


class ConnectionRates:
    """How many connections a second come in: on all listeners, on each, and from each address.

    A client above the limit of an address is closed after a while, which keeps it from asking again
    at once; above the other limits a listener waits before it accepts the next client (KIP-612). A
    wait is one window at most.
    """

    def __init__(self, clock: Clock, config: SocketConfig) -> None:
        self._clock = clock
        self._window_ms = config.quota_window_size_seconds * 1000
        self._new_rate = partial(Rate, config.quota_window_num, self._window_ms)
        self._of_listeners: dict[str | None, Rate] = {}
        """None has those of all listeners together."""
        self._of_ips: dict[str, Rate] = {}
        self._ip_limits: dict[str, float] = {}
        self._sweep_at = MAX_IDLE_RATES

    def limit_ip(self, ip: str, limit: float | None) -> None:
        """Set the limit of an address, or "" for all without one of their own; None removes it."""
        if limit is None:
            self._ip_limits.pop(ip, None)
        else:
            self._ip_limits[ip] = limit

    def refuses_ip(self, ip: str) -> int:
        """Note a connection; returns after how many ms to close it, 0 if the limit admits it."""
        limit = self._ip_limits.get(ip, self._ip_limits.get("")) if self._ip_limits else None
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        if len(self._of_ips) >= self._sweep_at:
            self._of_ips = {k: v for k, v in self._of_ips.items() if not v.is_idle(0, now_ms)}
            self._sweep_at = max(MAX_IDLE_RATES, 2 * len(self._of_ips))
        rate = self._of_ips.setdefault(ip, self._new_rate())
        wait_ms = self._record(rate, limit, now_ms)
        if wait_ms:
            rate.record(-1, limit, now_ms)  # those that are refused do not count
        return wait_ms

    def pause_ms(self, limits: Mapping[str | None, int]) -> int:
        """Note a connection; returns how long its listener must wait with the next one.

        `limits` are those that hold for it: of its listener and, under None, of all listeners.
        """
        now_ms = self._clock.monotonic_ms()
        pause_ms = 0
        for name, limit in limits.items():
            rate = self._of_listeners.setdefault(name, self._new_rate())
            pause_ms = max(pause_ms, self._record(rate, limit, now_ms))
        return pause_ms

    def _record(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, limit, now_ms)
        return min(self._window_ms, rate.delay_ms(limit, now_ms))
