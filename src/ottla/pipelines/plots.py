"""Plots as SVG to stand inside a page: text stays text, and nothing is loaded from anywhere.

A plot carries its values in the attribute `data-points`, for a script that shows the one that a
reader points at. Places are fractions of the picture, from its left and its top:

    {"across": true, "labels": ["10:04", ...], "at": [0.1, ...], "series": {"requests": ["9", ...]}}

`at` are the places of the labels along the axis that the panels share: across the picture or, for
bars, down.
"""

from __future__ import annotations

import html
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from math import isnan, nan
from typing import TYPE_CHECKING, Any, cast

from ottla.pipelines.tables import text_of

if TYPE_CHECKING:
    from ottla.pipelines.pipeline import Parameters
    from ottla.pipelines.tables import ResultTable

INK, MUTED, GRID = "#1f2933", "#56636f", "#e4e7eb"
FIRST, SECOND, ALARM = "#1d6fa5", "#e07a2d", "#c0392b"
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text, in the fonts of the page
    "svg.hashsalt": "ottla",  # the same ids each time
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}
MAX_LABEL = 44
MOST = 0.75
PLOTTED_ROWS = 15


def lines_plot(
    title: str,
    xs: Sequence[datetime],
    given: Mapping[str, Sequence[float | None]],
    step: timedelta | None = None,
) -> str:
    """One panel for each series over time.

    With `step` the line is broken wherever the next moment is further away than that, or than most
    moments are from the next one: a series of one minute in every hour is a line as well.
    """
    series = {name: list(map(_number, values)) for name, values in given.items()}
    if step is not None:
        step = max(step, usual_step(xs))
    figure, panels = _panels(
        {
            name: with_gaps(xs, values, step) if step is not None else (xs, values)
            for name, values in series.items()
        },
        {"linewidth": 1.4, "marker": "o", "markersize": 2.2},
    )
    _dates(panels[-1])
    return _svg(figure, title, partial(_points, panels[-1], xs, list(map(text_of, xs)), series))


def seconds_plot(title: str, xs: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """One panel for each series over the seconds of a run; each value is a point by itself."""
    figure, panels = _panels(
        {name: (xs, values) for name, values in series.items()},
        {"linestyle": "none", "marker": "o", "markersize": 3.6, "clip_on": False},
    )
    panels[-1].set_xlim(left=0)
    panels[-1].set_xlabel("seconds since the start")
    labels = [f"{text_of(float(x))} s" for x in xs]
    return _svg(figure, title, partial(_points, panels[-1], xs, labels, series))


def _panels(
    series: Mapping[str, tuple[Sequence[Any], Sequence[float]]], style: Mapping[str, Any]
) -> tuple[Any, Any]:
    """Panels of points, one below the other, with their names beside them."""
    figure, panels = _figure(rows=len(series), height=0.4 + 1.9 * len(series))
    colors = (FIRST, SECOND, MUTED)
    for panel, (name, (xs, values)), color in zip(panels, series.items(), colors, strict=False):
        panel.plot(xs, values, color=color, **style)
        panel.set_ylabel(name)
        panel.set_ylim(bottom=0, top=None if any(values) else 1)
        panel.margins(x=0.01)
        _thousands(panel.yaxis, integer=all(map(_is_whole, values)))
    return figure, panels


def bars_plot(
    labels: Sequence[str], given: Sequence[float | None], name: str, limit: float | None = None
) -> str:
    """Horizontal bars, the first on top; `limit` is drawn as a line across them."""
    values = list(map(_number, given))
    figure, (panel,) = _figure(rows=1, height=0.9 + 0.27 * max(1, len(labels)))
    positions = range(len(labels))
    bars = panel.barh(positions, values, color=FIRST, height=0.68)
    panel.bar_label(
        bars,
        [f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}" for value in values],
        padding=4,
        color=INK,
        fontsize=9,
    )
    panel.set_yticks(positions, [_short(label) for label in labels], color=INK, fontsize=9)
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.margins(x=0.12)
    panel.set_xlabel(name)
    _thousands(panel.xaxis)
    if limit is not None:
        panel.axvline(limit, color=ALARM, linewidth=1.2, linestyle="--")
    texts = [text_of(label) for label in labels]
    return _svg(
        figure, name, partial(_points, panel, list(positions), texts, {name: values}, across=False)
    )


def top_rows_plot(label: str, value: str, name: str) -> Callable[[ResultTable, Parameters], str]:
    """The plot of a section: a bar for each of the table's first rows, by two of its columns."""

    def plot(table: ResultTable, parameters: Parameters) -> str:
        top = table.rows[:PLOTTED_ROWS]
        return bars_plot([row[label] for row in top], [row[value] for row in top], name)

    return plot


def with_gaps(
    moments: Sequence[datetime], values: Sequence[float], step: timedelta
) -> tuple[list[datetime], list[float]]:
    """The points, with a hole (NaN) wherever the next one is not `step` later."""
    xs: list[datetime] = []
    ys: list[float] = []
    for moment, value in zip(moments, values, strict=True):
        if xs and moment - xs[-1] > step:
            xs.append(xs[-1] + step)
            ys.append(float("nan"))
        xs.append(moment)
        ys.append(value)
    return xs, ys


def usual_step(moments: Sequence[datetime]) -> timedelta:
    """The distance within which most moments have their next one; zero for fewer than two."""
    steps = sorted(after - before for before, after in pairwise(moments))
    return steps[int(len(steps) * MOST)] if steps else timedelta()


def _figure(rows: int, height: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(cast(Any, STYLE))
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        rows, 1, figsize=(9.2, height), sharex=True, squeeze=False, layout="constrained"
    )
    return figure, panels[:, 0]


def _thousands(axis: Any, integer: bool = True) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.set_major_locator(MaxNLocator(5, integer=integer))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}" if integer else "{x:,g}"))


def _number(value: float | None) -> float:
    return nan if value is None else value


def _is_whole(value: float) -> bool:
    return isnan(value) or float(value).is_integer()


def _dates(panel: Any) -> None:
    from matplotlib import dates

    untyped: Any = dates
    locator = untyped.AutoDateLocator(minticks=4, maxticks=9)
    panel.xaxis.set_major_locator(locator)
    panel.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
    # A margin would be outside the years that there are, beside the zero time of other languages.
    left, right = panel.get_xlim()
    # The last microsecond is the first one of the year 10000 by then.
    border = datetime.max.replace(microsecond=0)
    first, last = untyped.date2num([datetime.min, border])
    panel.set_xlim(max(left, first), min(right, last))


def _short(label: str) -> str:
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in label)
    text = text if len(text) <= MAX_LABEL else "…" + text[-MAX_LABEL + 1 :]
    # A dollar sign would start a formula.
    return text.replace("$", r"\$")


def _points(
    panel: Any,
    at: Sequence[Any],
    labels: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    across: bool = True,
) -> dict[str, object]:
    """The values of a plot whose layout is final, and where each of them stands."""
    to_picture = panel.transData + panel.figure.transFigure.inverted()
    numbers = panel.convert_xunits(at) if across else at
    if across:
        places = [float(to_picture.transform((each, 0))[0]) for each in numbers]
    else:
        places = [1 - float(to_picture.transform((0, each))[1]) for each in numbers]
    return {
        "across": across,
        "labels": labels,
        "at": [round(place, 4) for place in places],
        "series": {name: list(map(text_of, values)) for name, values in series.items()},
    }


def _svg(figure: Any, title: str, points: Callable[[], dict[str, object]]) -> str:
    """The picture without the prolog and the metadata, which name addresses on the network."""
    from matplotlib import pyplot

    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The browser's fonts write the text; those of matplotlib, which may lack a letter, do not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", metadata=NO_METADATA, transparent=True)
    data = html.escape(json.dumps(points(), separators=(",", ":")))
    pyplot.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", text, count=1)
    head = f'<svg role="img" tabindex="0" aria-label="{title}" data-points="{data}" '
    return text.replace("<svg ", head, 1)
