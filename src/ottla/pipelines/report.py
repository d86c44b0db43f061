"""One HTML page with everything a run found: it needs no network and no other file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.pipelines.plots import bars_plot, traffic_plot
from ottla.pipelines.tables import Table, is_number, text_of

if TYPE_CHECKING:
    from ottla.pipelines.web_traffic.pipeline import Reconciliation

TEMPLATE = Path(__file__).with_name("report.html")
PLOTTED_ROWS = 15
SHOWN_ROWS = 20
MAX_CELL_WIDTH = 400


@dataclass(frozen=True, slots=True)
class Run:
    """What is told about a run: where its events came from, its counts, tables and steps."""

    source: str
    events_in: int
    counts: Reconciliation
    max_requests_per_minute: int
    tables: Mapping[str, Table]
    steps: Sequence[tuple[str, float]]
    versions: str


def write_report(run: Run, path: Path) -> None:
    path.write_text(render(run), encoding="utf-8")


def render(run: Run) -> str:
    """The page; whatever comes from the log is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["cell"] = partial(text_of, width=MAX_CELL_WIDTH)
    environment.tests["numeric"] = is_number
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    traffic = run.tables["traffic_per_minute"]
    return template.render(
        run=run,
        tables=run.tables,
        plots=_plots(run),
        shown_rows=SHOWN_ROWS,
        total_bytes=sum(traffic.column("bytes")),
        first_minute=min(traffic.column("minute"), default=None),
        last_minute=max(traffic.column("minute"), default=None),
    )


def _plots(run: Run) -> dict[str, str]:
    """The plots by the name of their table; a table without rows has none."""
    traffic = run.tables["traffic_per_minute"]
    pages = Table(("path", "requests"), run.tables["top_pages"].rows[:PLOTTED_ROWS])
    fast = Table(("client", "peak"), run.tables["crawlers_by_rate"].rows[:PLOTTED_ROWS])
    plots = {}
    if traffic.rows:
        megabytes = [size / 1e6 for size in traffic.column("bytes")]
        plots["traffic_per_minute"] = traffic_plot(
            traffic.column("minute"),
            {
                "requests": traffic.column("requests"),
                "clients": traffic.column("clients"),
                "MB sent": megabytes,
            },
        )
    if pages.rows:
        plots["top_pages"] = bars_plot(pages.column("path"), pages.column("requests"), "requests")
    if fast.rows:
        plots["crawlers_by_rate"] = bars_plot(
            fast.column("client"),
            fast.column("peak"),
            "requests in the busiest minute",
            limit=run.max_requests_per_minute,
        )
    return plots
