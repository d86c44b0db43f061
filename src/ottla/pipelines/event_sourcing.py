"""Accounts whose state is the sum of their events, now and at any moment before.

The state is made of sums and newest values alone: the order in which events come does not matter.
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
    event,
    moments,
)
from ottla.pipelines.plots import lines_plot
from ottla.pipelines.records import once_within, total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.pipelines.tables import ResultTable


NAME = ("account", "version")


def state(events: DataFrame) -> DataFrame:
    """Each account: its balance, whether it is open, and the version of its newest event."""
    newest = F.max_by("kind", "version")
    return events.groupBy("account").agg(
        total(_change()).alias("balance"),
        F.when(newest == "closed", "closed").otherwise("open").alias("status"),
        F.max("version").alias("version"),
        F.max("time").alias("time"),
    )


def events_until(events: DataFrame, moment: Column) -> DataFrame:
    """The events up to a moment."""
    return events.where(F.col("time") <= moment)


def state_at(events: DataFrame, at: str) -> DataFrame:
    """The accounts as they were at a moment; without one, at the middle of the history."""
    history = events.dropDuplicates(list(NAME))
    if at:
        return state(events_until(history, F.lit(at).cast("timestamp")))
    seconds = (F.unix_seconds(F.min("time")) + F.unix_seconds(F.max("time"))) / 2
    middle = history.agg(F.timestamp_seconds(F.floor(seconds)).alias("middle"))
    until = history.crossJoin(F.broadcast(middle)).where(F.col("time") <= F.col("middle"))
    return state(until.drop("middle"))


def balance_over_time(events: DataFrame, steps: int) -> DataFrame:
    """The accounts and the sum of their balances, at moments from first to last event."""
    history = events.dropDuplicates(list(NAME))
    ends = history.agg(F.unix_seconds(F.min("time")).alias("first"), F.max("time").alias("newest"))
    # The whole second that the newest event is in ends behind it.
    last = F.ceil(F.unix_micros("newest") / F.lit(1_000_000))
    moments_of_steps = F.transform(
        F.sequence(F.lit(1), F.lit(steps)),
        lambda step: F.least(
            F.timestamp_seconds(F.col("first") + F.ceil((last - F.col("first")) * step / steps)),
            "newest",
        ),
    )
    # A short history has fewer moments than steps, and an event counts once at each.
    moments = ends.select(F.explode(F.array_distinct(moments_of_steps)).alias("moment"))
    until = moments.join(history, F.col("time") <= F.col("moment"))
    return (
        until.groupBy("moment")
        .agg(F.count_distinct("account").alias("accounts"), total(_change()).alias("balance"))
        .orderBy("moment")
    )


def _change() -> Column:
    """The amount by which an event changes the balance; the least bigint has no opposite in it."""
    amount = F.col("amount").cast("decimal(20, 0)")
    return F.when(F.col("kind") == "withdrawn", -amount).otherwise(amount)


EVENTS, STATES = "account-events", "account-states"
ACCOUNTS = 100
MEAN_PAUSE_S = 1.0
REPEATED_SHARE = 0.01
STEPS = 10


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {STATES: state(once_within(streams[EVENTS], NAME, parameters["late"]))}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Accounts that are opened and moved; now and then a producer sends an event twice."""
    chance = random.Random(request.seed)
    versions: dict[str, int] = {}
    for moment in moments(chance, request.events, MEAN_PAUSE_S):
        account = f"account-{chance.randrange(ACCOUNTS)}"
        version = versions[account] = versions.get(account, 0) + 1
        kind = chance.choice(("deposited", "deposited", "withdrawn")) if version > 1 else "opened"
        amount = 100 if kind == "opened" else chance.randrange(1, 60)
        happened = event(
            EVENTS,
            account,
            account=account,
            version=version,
            kind=kind,
            amount=amount,
            time=moment,
        )
        yield happened
        if chance.random() < REPEATED_SHARE:
            yield happened


def in_order(accounts: DataFrame) -> DataFrame:
    """The accounts by name, account-2 before account-10."""
    return accounts.orderBy(F.length("account"), "account")


def _plot(table: ResultTable, parameters: Parameters) -> str:
    series = {"accounts": table.column("accounts"), "sum of balances": table.column("balance")}
    return lines_plot("Balances over time", table.column("moment"), series)


PIPELINE = Pipeline(
    name="event_sourcing",
    summary="Make the state of accounts of their events, now and at any moment before.",
    inputs=(
        Input(
            EVENTS,
            "account string, version int, kind string, amount bigint, time timestamp",
            needed=(*NAME, "time"),
        ),
    ),
    outputs=(Output(STATES, key=("account",), identity=("account",), mode="update"),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "accounts",
            "Accounts now",
            "The newest state of each account, as the stream has made it.",
            lambda topics, parameters: in_order(topics[STATES]),
        ),
        Section(
            "accounts_then",
            "Accounts then",
            "The same accounts halfway through the history, or at the moment that --param at=... "
            "says: made of the events until then.",
            lambda topics, parameters: in_order(state_at(topics[EVENTS], parameters["at"])),
        ),
        Section(
            "history",
            "Balances over time",
            "The state of all accounts at moments of the history.",
            lambda topics, parameters: balance_over_time(topics[EVENTS], STEPS),
            _plot,
        ),
    ),
    parameters={"at": "", "late": "1 hour"},
)
