"""The shop as a pipeline: sales and shipments in, reorders and prices out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.feeds import after, event, moments, zipf_weights
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
from ottla.pipelines.plots import top_rows_plot
from ottla.pipelines.retail.transformations import prices, reorders, stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SALES, SHIPMENTS = "sales", "shipments"
REORDERS, PRICES = "reorders", "price-adjustments"
MOVEMENT = "item string, quantity int, time timestamp"
ITEMS = 40
FIRST_SHIPMENT = 300
MEAN_PAUSE_S = 1.0
SHIPMENT_SHARE = 0.02


def build(streams: Frames, parameters: Parameters) -> Frames:
    left = stock(streams[SALES], streams[SHIPMENTS])
    below, target = int(parameters["reorder_below"]), int(parameters["target"])
    return {REORDERS: reorders(left, below, target), PRICES: prices(left)}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Every item is shipped once; then customers come, and now and then another shipment."""
    chance = random.Random(request.seed)
    items = [f"item-{number}" for number in range(1, ITEMS + 1)]
    weights = zipf_weights(ITEMS)
    for item in items:
        yield event(SHIPMENTS, item, item=item, quantity=FIRST_SHIPMENT, time=after(0))
    for moment in moments(chance, request.events, MEAN_PAUSE_S):
        (item,) = chance.choices(items, weights)
        if chance.random() < SHIPMENT_SHARE:
            topic, quantity = SHIPMENTS, 100
        else:
            topic, quantity = SALES, chance.choice((1, 1, 1, 2, 5))
        yield event(topic, item, item=item, quantity=quantity, time=moment)


def _wanted(topics: Frames, parameters: Parameters) -> DataFrame:
    wanted = topics[REORDERS].where(F.col("quantity") > 0)
    return wanted.orderBy(F.desc("quantity"), "item")


def _changed(topics: Frames, parameters: Parameters) -> DataFrame:
    changed = topics[PRICES].where(F.col("percent") != 0)
    return changed.orderBy(F.desc("demand"), "item")


PIPELINE = Pipeline(
    name="retail",
    summary="Make reorders and price adjustments of sales and shipments.",
    inputs=(Input(SALES, MOVEMENT), Input(SHIPMENTS, MOVEMENT)),
    outputs=(
        Output(REORDERS, key=("item",), identity=("item",), mode="update"),
        Output(PRICES, key=("item",), identity=("item",), mode="update"),
    ),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "reorders",
            "Reorders",
            "Items that run out, and how many to order.",
            _wanted,
            top_rows_plot("item", "quantity", "to reorder"),
        ),
        Section(
            "prices",
            "Prices",
            "Items that sell well become dearer, those that do not cheaper (percent).",
            _changed,
        ),
    ),
    parameters={"reorder_below": "50", "target": "400"},
)
