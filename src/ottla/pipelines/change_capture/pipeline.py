"""Change capture as a pipeline: a compacted topic of row changes in, a Delta table out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.pipelines.change_capture.transformations import by_city, changes, differences
from ottla.pipelines.feeds import after, event
from ottla.pipelines.pipeline import (
    Event,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
)
from ottla.pipelines.plots import bars_plot

if TYPE_CHECKING:
    from ottla.pipelines.tables import ResultTable

CHANGES, CUSTOMERS = "customer-changes", "customers"
CITIES = ("Oslo", "Bergen", "Lima", "Cusco", "Kyoto", "Osaka", "Accra")
KEYS = 500
DELETED_SHARE = 0.1


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {CUSTOMERS: changes(streams[CHANGES])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Customers who come, move, pay and go, as a database would report them."""
    chance = random.Random(request.seed)
    for number in range(request.events):
        key = f"customer-{chance.randrange(KEYS)}"
        if chance.random() < DELETED_SHARE:
            yield Event(CHANGES, key.encode(), None)
            continue
        yield event(
            CHANGES,
            key,
            name=key.title().replace("-", " "),
            city=chance.choice(CITIES),
            balance=chance.randrange(10_000),
            changed_at=after(number),
        )


def _plot(table: ResultTable, parameters: Parameters) -> str:
    return bars_plot(table.column("city"), table.column("balance"), "balance")


PIPELINE = Pipeline(
    name="change_capture",
    summary="Keep a Delta table in step with a compacted topic of row changes.",
    inputs=(Input(CHANGES, is_compacted=True),),
    outputs=(Output(CUSTOMERS, identity=("id",), is_table=True),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "completeness",
            "Table and topic",
            "The table beside the newest change of each key: the last three have to be 0.",
            lambda topics, parameters: differences(topics[CUSTOMERS], topics[CHANGES]),
            faults=("missing", "surplus", "outdated"),
        ),
        Section(
            "by_city",
            "Customers by city",
            "What the table says.",
            lambda topics, parameters: by_city(topics[CUSTOMERS]),
            _plot,
        ),
    ),
)
