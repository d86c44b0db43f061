"""How values look on a page: counts, sizes, times and small plots. These are Jinja's filters."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup, escape

from ottla.console.decoding import ACTING, LINE_CHARACTERS, beginning, harmless, indented
from ottla.console.moments import LAST_YEAR_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB", "EB")
BYTES_IN_UNIT: Final = 1024
NOTHING: Final = "–"
AGES: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
WIDTH, HEIGHT = 104, 22


def count_text(value: float | None) -> str:
    """`12,345`; a dash for None."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def three_digits(value: float) -> str:
    """`12.3` of a number from 1 on; all digits before the point where there are more."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """`12.3k` for a place that is narrow."""
    if value is None:
        return NOTHING
    for unit, size, scale in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e4, 1e3)):
        if abs(value) >= size:
            return f"{'-' * (value < 0)}{three_digits(abs(value) / scale)}{unit}"
    return f"{value:,.1f}" if 0 < abs(value) < 10 and value % 1 else f"{value:,.0f}"


def size_text(value: float | None) -> str:
    """`1.2 MB`, in powers of 1024; a dash for None and for -1, an unknown size."""
    if value is None or value < 0:
        return NOTHING
    unit = 0
    while value >= BYTES_IN_UNIT and unit < len(UNITS) - 1:
        value /= BYTES_IN_UNIT
        unit += 1
    return f"{value:.0f} {UNITS[unit]}" if unit == 0 else f"{three_digits(value)} {UNITS[unit]}"


def duration_text(ms: float | None) -> str:
    """`8 min 12 s`, in the two largest units; a dash for None."""
    if ms is None:
        return NOTHING
    if ms < 1000:
        return f"{ms:.0f} ms"
    parts: list[str] = []
    rest = int(ms)
    for unit, length in AGES:
        if rest >= length:
            parts.append(f"{rest // length} {unit}")
            rest %= length
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def moment(ms: int | None) -> Markup:
    """A time in the zone of this machine, with UTC as its title."""
    if ms is None or ms < 0:
        return Markup('<span class="muted">no time</span>')
    if ms >= LAST_YEAR_MS:
        return Markup('<time title="milliseconds since 1970">{}</time>').format(ms)
    there = datetime.fromtimestamp(ms / 1000, UTC)
    text = f"{there:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"
    local = there.astimezone()
    day = "today" if local.date() == datetime.now().astimezone().date() else ""
    return Markup('<time datetime="{}" title="{}"><span class="{}">{}</span> {}</time>').format(
        text, text, day, f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}.{ms % 1000:03}"
    )


def printable(value: Any) -> Any:
    """A text of any page with escapes for characters on which a screen acts; the rest as it is.

    Names come from others, such as client ids. Markup is made by templates and filters.
    """
    return harmless(value) if type(value) is str else value


def exactly(value: str) -> Markup:
    """A text for a field of a form, whose characters come back as they are.

    Those that act on a screen are HTML's references; only C1 controls have none.
    """
    return Markup(ACTING.sub(_reference, str(escape(value))))


def _reference(found: re.Match[str]) -> str:
    number = ord(found[0])
    return found[0] if 0x80 <= number < 0xA0 else f"&#{number};"


def percent(part: float, whole: float) -> str:
    """`12 %`; 0 % of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def sparkline(known: Sequence[float | None], label: str = "", points: int = 0) -> Markup:
    """A small line over equal steps of time, from 0 up; nothing for fewer than two values.

    None is a gap; there is one before the values where they are fewer than `points`. The words for
    those who do not see the line are `label` and the last value.
    """
    values = [*([None] * (points - len(known))), *known]
    found = [each for each in known if each is not None]
    if len(found) < 2:
        return Markup("")
    top = max(*found, 0)
    lines = Markup("").join(
        Markup('<polyline points="{}"/>').format(" ".join(run))
        for run in _runs(values, top or 1)
        if len(run) > 1
    )
    words = f"{label} {short_count(found[-1])}".strip()
    return Markup(
        '<svg class="spark{}" viewBox="0 0 {} {}" role="img" aria-label="{}" '
        'preserveAspectRatio="none">{}</svg>'
    ).format("" if top else " flat", WIDTH, HEIGHT, words, lines)


BAR: Final = Markup(
    '<a href="{}?from={}&amp;to={}" aria-label="{} records at {}">'
    '<rect class="touch" x="{:.1f}" y="0" width="{:.1f}" height="200"/>'
    '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/></a>'
)


def bars(counts: Sequence[int], moments: Sequence[int], step_ms: int, path: str) -> Markup:
    """Bars of records over time; each leads to the records of its time."""
    top, width = max(counts, default=0), 1000 / max(1, len(counts))
    drawn = Markup("")
    for index, (count, at_ms) in enumerate(zip(counts, moments, strict=True)):
        height = 190 * count / (top or 1)
        drawn += BAR.format(
            *(path, at_ms, at_ms + step_ms, count, _clock_text(at_ms), index * width, width),
            *(index * width + 1, 200 - height, max(1, width - 2), height),
        )
    return Markup(
        '<svg class="bars" viewBox="0 0 1000 200" preserveAspectRatio="none" role="group" '
        'aria-label="Records over time">{}</svg><div class="top-mark">{}</div>'
    ).format(drawn, count_text(top))


def _clock_text(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _runs(values: Sequence[float | None], top: float) -> list[list[str]]:
    """The points between gaps, as SVG has them."""
    runs: list[list[str]] = [[]]
    for index, each in enumerate(values):
        if each is None:
            runs.append([])
        else:
            down = HEIGHT - 1 - each / top * (HEIGHT - 3)
            runs[-1].append(f"{index * WIDTH / (len(values) - 1):.1f},{down:.1f}")
    return runs


def cell_text(value: Any) -> Markup | str:
    """The beginning of a value of a table, lists and objects as JSON."""
    if value is None:
        return Markup('<span class="muted">null</span>')
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return beginning(text, LINE_CHARACTERS)


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "count": count_text,
    "short": short_count,
    "size": size_text,
    "duration": duration_text,
    "exactly": exactly,
    "moment": moment,
    "percent": percent,
    "sparkline": sparkline,
    "bars": bars,
    "indented": indented,
    "cell": cell_text,
}
