"""Event sourcing as a pipeline: what happens to accounts in, their states out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.event_sourcing.transformations import (
    NAME,
    balance_over_time,
    state,
    state_at,
)
from ottla.pipelines.feeds import event, moments
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
from ottla.pipelines.plots import lines_plot
from ottla.pipelines.records import once_within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipelines.tables import ResultTable

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
    """By name, account-2 before account-10."""
    return accounts.orderBy(F.length("account"), "account")


def _plot(table: ResultTable, parameters: Parameters) -> str:
    series = {"accounts": table.column("accounts"), "sum of balances": table.column("balance")}
    return lines_plot("Balances over time", table.column("moment"), series)


PIPELINE = Pipeline(
    name="event_sourcing",
    summary="Make the state of accounts of their events, now and at any moment before.",
    inputs=(
        Input(EVENTS, "account string, version int, kind string, amount bigint, time timestamp"),
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
