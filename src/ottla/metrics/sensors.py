"""The instruments of measurement: meters, histograms and windowed statistics, as Kafka's two
libraries have them.

A sensor costs nothing where things happen: the core keeps plain numbers that only grow, and a
meter reads its number when `tick` is called. Measured values come in lists, many at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ottla.runtime import Chance
from ottla.structs import Value

Read = Callable[[], float]

TICK_MS: Final = 5_000
"""Meters follow their numbers once in this time (the library of Kafka's brokers has the same)."""
MINUTES: Final = (1, 5, 15)
WEIGHTS: Final = tuple(1 - math.exp(-TICK_MS / 60_000 / minutes) for minutes in MINUTES)

RATE_NAMES: Final = ("OneMinuteRate", "FiveMinuteRate", "FifteenMinuteRate")
"""What the rates over these minutes are called in JMX."""

PERCENTILES: Final[dict[str, float]] = {
    "50thPercentile": 0.5,
    "75thPercentile": 0.75,
    "95thPercentile": 0.95,
    "98thPercentile": 0.98,
    "99thPercentile": 0.99,
    "999thPercentile": 0.999,
}
"""The percentiles that a histogram shows, by their names in JMX."""

WINDOW_MS: Final = 30_000
WINDOW_COUNT: Final = 10
SAMPLES_PER_WINDOW: Final = 128


class Meter:
    """A count that only grows, and how fast it does, in events a second.

    The three rates are averages that forget exponentially, over 1, 5 and 15 minutes.
    """

    __slots__ = ("_began_ms", "_last", "_rates", "event_type", "read")

    def __init__(self, read: Read, now_ms: int, event_type: str = "events") -> None:
        self.read = read
        self.event_type = event_type
        self._began_ms = now_ms
        self._last = read()
        self._rates: tuple[float, ...] | None = None

    @property
    def count(self) -> float:
        return self.read()

    def mean_rate(self, now_ms: int) -> float:
        """Events a second since the meter was made."""
        elapsed_ms = now_ms - self._began_ms
        return 1000 * self.read() / elapsed_ms if elapsed_ms > 0 else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Events a second, over about 1, 5 and 15 minutes; 0 before the first tick."""
        return self._rates or (0.0,) * len(MINUTES)

    def shown(self, attribute: str, now_ms: int) -> float:
        """The number under one of its names in JMX."""
        if attribute == "Count":
            return self.count
        if attribute == "MeanRate":
            return self.mean_rate(now_ms)
        return self.rates[RATE_NAMES.index(attribute)]

    def tick(self) -> None:
        """Follow the count; to be called every `TICK_MS`."""
        count = self.read()
        before = self._rates
        if count == self._last and before is None:
            return
        rate = 1000 * (count - self._last) / TICK_MS
        self._last = count
        if before is None:
            self._rates = (rate,) * len(MINUTES)
        else:
            self._rates = tuple(
                old + weight * (rate - old) for old, weight in zip(before, WEIGHTS, strict=True)
            )


class Window:
    """A uniform sample of the values that came within one window of time."""

    __slots__ = ("_next", "_weight", "samples", "seen")

    def __init__(self) -> None:
        self.samples: list[float] = []
        self.seen = 0
        # The number of the value that is kept next, once the sample is full (Li's algorithm L).
        self._next = SAMPLES_PER_WINDOW - 1
        self._weight = 1.0

    def add(self, values: Sequence[float], chance: Chance) -> None:
        """Keep some of the values, each with the same probability."""
        room = SAMPLES_PER_WINDOW - len(self.samples)
        if room > 0:
            self.samples.extend(values[:room])
            if len(self.samples) == SAMPLES_PER_WINDOW:
                self._skip(chance)
        end = self.seen + len(values)
        while self._next < end:
            self.samples[chance.randrange(SAMPLES_PER_WINDOW)] = values[self._next - self.seen]
            self._skip(chance)
        self.seen = end

    def _skip(self, chance: Chance) -> None:
        self._weight *= math.exp(math.log(1 - chance.random()) / SAMPLES_PER_WINDOW)
        self._next += 1 + int(math.log(1 - chance.random()) / math.log1p(-self._weight))


class Snapshot(Value, frozen=True):
    """A histogram at one moment; percentiles and deviation are those of about 5 minutes."""

    count: int
    min: float
    max: float
    mean: float
    std_dev: float
    percentiles: dict[str, float]


class Histogram:
    """The distribution of values: all of them in count and mean, a bounded sample in percentiles.

    `min`, `max` and `mean` are of all values since the start, as in Kafka.
    """

    __slots__ = ("_chance", "_window_ends_ms", "_windows", "count", "max", "min", "total")

    def __init__(self, chance: Chance, now_ms: int) -> None:
        self.count = 0
        self.total = 0.0
        self.min = 0.0
        self.max = 0.0
        self._chance = chance
        self._windows: deque[Window] = deque([Window()], WINDOW_COUNT)
        self._window_ends_ms = now_ms + WINDOW_MS

    @property
    def shown_count(self) -> int:
        """How many values there were; a sampled histogram has not seen all of them."""
        return self.count

    def update(self, value: float, now_ms: int) -> None:
        """Take one value."""
        self.update_all((value,), now_ms)

    def update_all(self, values: Sequence[float], now_ms: int) -> None:
        """Take values that came since the last call."""
        if not values:
            return
        self._roll(now_ms)
        low, high = min(values), max(values)
        if self.count:
            low, high = min(low, self.min), max(high, self.max)
        self.min, self.max = low, high
        self.count += len(values)
        self.total += sum(values)
        self._windows[-1].add(values, self._chance)

    def _roll(self, now_ms: int) -> None:
        if now_ms < self._window_ends_ms:
            return
        passed = min((now_ms - self._window_ends_ms) // WINDOW_MS + 1, WINDOW_COUNT)
        for _ in range(passed):
            self._windows.append(Window())
        self._window_ends_ms = now_ms + WINDOW_MS

    def snapshot(self, now_ms: int) -> Snapshot:
        """The distribution as it is now."""
        self._roll(now_ms)
        weighted = sorted(
            (value, window.seen / len(window.samples))
            for window in self._windows
            if window.samples
            for value in window.samples
        )
        mean = self.total / self.count if self.count else 0.0
        percentiles = dict(zip(PERCENTILES, _quantiles(weighted), strict=True))
        return Snapshot(self.shown_count, self.min, self.max, mean, _std_dev(weighted), percentiles)


def _quantiles(weighted: Sequence[tuple[float, float]]) -> list[float]:
    """The values at the percentiles; 0 where there are none."""
    total = sum(weight for _, weight in weighted)
    found: list[float] = []
    wanted = [fraction * total for fraction in PERCENTILES.values()]
    reached = 0.0
    for value, weight in weighted:
        reached += weight
        while len(found) < len(wanted) and reached >= wanted[len(found)] - 1e-9:
            found.append(value)
    return found + [weighted[-1][0] if weighted else 0.0] * (len(wanted) - len(found))


def _std_dev(weighted: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in weighted)
    if total <= 1:
        return 0.0
    mean = sum(value * weight for value, weight in weighted) / total
    squares = sum(weight * (value - mean) ** 2 for value, weight in weighted)
    return math.sqrt(squares / (total - 1))


class Timer:
    """How often something happens and how long it takes, in ms."""

    __slots__ = ("histogram", "meter")

    def __init__(self, chance: Chance, now_ms: int) -> None:
        self.histogram = Histogram(chance, now_ms)
        self.meter = Meter(lambda: self.histogram.count, now_ms, "calls")

    def update(self, took_ms: float, now_ms: int) -> None:
        """It has happened once, and taken so long."""
        self.histogram.update(took_ms, now_ms)

    def tick(self) -> None:
        self.meter.tick()


LATEST_WINDOWS: Final = 2
"""The windows that are looked back on, with the present one."""


class WindowedRate:
    """How fast a number grows, in units a second, over the present window and the last ones."""

    __slots__ = ("_marks", "read")

    def __init__(self, read: Read, now_ms: int) -> None:
        self.read = read
        self._marks: deque[tuple[int, float]] = deque([(now_ms, read())], LATEST_WINDOWS)

    def tick(self, now_ms: int) -> None:
        """Begin a window where the last one is over."""
        if now_ms - self._marks[-1][0] >= WINDOW_MS:
            self._marks.append((now_ms, self.read()))

    def value(self, now_ms: int) -> float:
        """Units a second since the oldest window began; as if that were a window ago at least."""
        self.tick(now_ms)
        began_ms, before = self._marks[0]
        elapsed_ms = max(now_ms - began_ms, WINDOW_MS)
        return 1000 * (self.read() - before) / elapsed_ms


class Counted:
    """Numbers that only grow, each shown as a rate and as a total."""

    def __init__(self, now_ms: int, **reads: Callable[[], float]) -> None:
        self._rates = {
            name.replace("_", "-"): WindowedRate(read, now_ms) for name, read in reads.items()
        }

    def tick(self, now_ms: int) -> None:
        """Begin new windows; to be called every 30 s."""
        for rate in self._rates.values():
            rate.tick(now_ms)

    def shown(self, now_ms: int) -> dict[str, float]:
        """The values of `...-rate` and `...-total`."""
        found: dict[str, float] = {}
        for name, rate in self._rates.items():
            found[f"{name}-rate"] = rate.value(now_ms)
            found[f"{name}-total"] = rate.read()
        return found


class WindowedValues:
    """Average, maximum and minimum of values over the present window and the last one.

    They are NaN while there is none; `last` is the value that came last, however long ago.
    """

    __slots__ = ("_windows", "count", "last", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.last = math.nan
        # When each window began, the number of its values, their sum, the largest and the least.
        self._windows: deque[list[float]] = deque(maxlen=LATEST_WINDOWS)

    def record(self, value: float, now_ms: int) -> None:
        """Take one value."""
        self.count += 1
        self.total += value
        self.last = value
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= WINDOW_MS:
            windows.append([now_ms, 0, 0.0, value, value])
        window = windows[-1]
        window[1] += 1
        window[2] += value
        if value > window[3]:
            window[3] = value
        elif value < window[4]:
            window[4] = value

    def _live(self, now_ms: int) -> list[list[float]]:
        oldest = now_ms - WINDOW_MS * LATEST_WINDOWS
        return [window for window in self._windows if window[0] >= oldest]

    def average(self, now_ms: int) -> float:
        """The mean of the latest values."""
        live = self._live(now_ms)
        count = sum(window[1] for window in live)
        return sum(window[2] for window in live) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """The largest of the latest values."""
        return max((window[3] for window in self._live(now_ms)), default=math.nan)

    def minimum(self, now_ms: int) -> float:
        """The least of the latest values."""
        return min((window[4] for window in self._live(now_ms)), default=math.nan)
