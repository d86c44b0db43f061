"""From sales and shipments to stock, and from stock to reorders and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HIGH_DEMAND, LOW_DEMAND = 0.8, 0.2
PERCENT_UP, PERCENT_DOWN = 10, -10


def stock(sales: DataFrame, shipments: DataFrame) -> DataFrame:
    """What came, what went, and what is left of each item."""
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
    """By how many percent the price of each item changes."""
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
