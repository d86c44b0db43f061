"""Sales and shipments of a shop, and their consequences: reorders and prices.

Stock is made of sales and shipments, and both results of stock.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.pipeline import (
    Event,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
    after,
    event,
    moments,
)
from ottla.pipelines.plots import top_rows_plot
from ottla.pipelines.site_traffic import zipf_weights

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


HIGH_DEMAND, LOW_DEMAND = 0.8, 0.2
PERCENT_UP, PERCENT_DOWN = 10, -10


def stock(sales: DataFrame, shipments: DataFrame) -> DataFrame:
    """The arrivals, the sales, and the rest of each item."""
    movements = _movements(sales, F.lit(0), F.col("quantity")).unionByName(
        _movements(shipments, F.col("quantity"), F.lit(0))
    )
    return (
        movements.groupBy("item")
        .agg(F.sum("shipped").alias("shipped"), F.sum("sold").alias("sold"))
        .withColumn("stock", F.col("shipped") - F.col("sold"))
    )


def reorders(stock: DataFrame, reorder_below: int, target: int) -> DataFrame:
    """How much of each item to order: nothing, as long as there is enough."""
    missing = F.when(F.col("stock") < reorder_below, target - F.col("stock")).otherwise(0)
    return stock.select("item", "stock", missing.cast("bigint").alias("quantity"))


def prices(stock: DataFrame) -> DataFrame:
    """The percentage by which the price of each item changes."""
    demand = F.try_divide(F.col("sold"), F.col("shipped"))
    percent = (
        F.when(demand >= HIGH_DEMAND, PERCENT_UP).when(demand < LOW_DEMAND, PERCENT_DOWN)
    ).otherwise(0)
    return stock.select(
        "item", "sold", "shipped", F.round(demand, 4).alias("demand"), percent.alias("percent")
    )


def _movements(rows: DataFrame, shipped: Column, sold: Column) -> DataFrame:
    return rows.select(
        "item", shipped.cast("bigint").alias("shipped"), sold.cast("bigint").alias("sold")
    )


SALES, SHIPMENTS = "sales", "shipments"
REORDERS, PRICES = "reorders", "price-adjustments"
MOVEMENT = "item string, quantity int, time timestamp"
MOVED = ("item", "quantity")
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


def _reorders(topics: Frames, parameters: Parameters) -> DataFrame:
    wanted = topics[REORDERS].where(F.col("quantity") > 0)
    return wanted.orderBy(F.desc("quantity"), "item")


def _changed(topics: Frames, parameters: Parameters) -> DataFrame:
    changed = topics[PRICES].where(F.col("percent") != 0)
    return changed.orderBy(F.desc("demand"), "item")


PIPELINE = Pipeline(
    name="retail",
    summary="Make reorders and price adjustments of sales and shipments.",
    inputs=(
        Input(SALES, MOVEMENT, needed=MOVED),
        Input(SHIPMENTS, MOVEMENT, needed=MOVED),
    ),
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
            _reorders,
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
