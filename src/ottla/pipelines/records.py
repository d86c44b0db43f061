"""Records as rows and rows as records: JSON objects of a known schema in the values.

`_partition` and `_offset` stay with each row that comes from a topic. A value that is no JSON
object of the schema is counted under `malformed` in the metrics of the query, and left out; so is
a record that the pipeline itself has a reason to leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipelines.logged_request import NO_VALUE
from ottla.pipelines.pipeline import KEY_SEPARATOR, Input, Output, columns_of
from ottla.spark.source import NEWEST_TIME, RECORD_ORDER, RecordOrder
from ottla.warehouse.loads import MOMENTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


PLACE = ("_partition", "_offset")
DELETED = "_deleted"
TABLE_ORDER = RecordOrder("_timestamp", "_partition", "_offset")
"""The columns of a table's row that say which record it is."""
LOG_ORDER = RecordOrder("_log_timestamp", "_log_partition", "_log_offset")
"""The same of the record that an output's row was read from, beside all of its columns."""
PROBLEM = "_problem"
REASON = "_reason"
OBJECT = "_object"
NO_OBJECT = "the value is no JSON object"
FAR_TIME = "a time outside the years 1 to 9999"
MISFIT = "the value does not fit the columns"


def observed(records: DataFrame, source: Input) -> DataFrame:
    """The same rows, counted: Spark reports the metrics with the progress of a query.

    Records that are left out are counted by their reasons as well, where these are known before.
    """
    if source.left_out is not None:
        malformed = F.count_if(source.left_out().isNotNull())
        return _counted(records, source, {"malformed": malformed})
    if not source.schema:
        return _counted(records, source, {"malformed": F.lit(0)})
    reasons = reasons_of(source)
    parsed = _parsed(records, source.schema, *records.columns)
    numbered = parsed.withColumn(REASON, _reason_number(source, reasons)).drop(OBJECT)
    counts = {name: F.count_if(F.col(REASON) == n) for n, name in enumerate(reasons)}
    malformed = F.count_if(F.col(REASON).isNotNull())
    return _counted(numbered, source, {"malformed": malformed, **counts}).drop(REASON)


def _counted(records: DataFrame, source: Input, counts: Mapping[str, Column]) -> DataFrame:
    named = ((F.lit(0) + count).alias(name) for name, count in counts.items())
    return records.observe(source.topic, F.count("*").alias("rows"), *named)


def reasons_of(source: Input) -> list[str]:
    """Why a record is no row of an input, the reasons that come first standing first."""
    misfits = (f"{name} is no {kind}" for name, kind in columns_of(source.schema).items())
    missing = (f"{name} is missing" for name in source.needed)
    return [NO_VALUE, NO_OBJECT, *misfits, FAR_TIME, *missing, MISFIT]


def _reason_number(source: Input, reasons: Sequence[str]) -> Column:
    """The number of the reason for leaving a parsed record out; null for one that is a row."""
    text = F.make_valid_utf8(F.col("value").cast("string"))
    # Only records with a problem are parsed once more, field by field.
    found, given = F.col(OBJECT), F.from_json(text, "map<string, string>")
    problem = _problem(source.schema, source.needed)
    first = F.when(F.col("value").isNull(), reasons.index(NO_VALUE)).when(
        given.isNull(), reasons.index(NO_OBJECT)
    )
    for number, name in enumerate(columns_of(source.schema), reasons.index(NO_OBJECT) + 1):
        first = first.when(given[name].isNotNull() & found[name].isNull(), number)
    for number in range(reasons.index(FAR_TIME), reasons.index(MISFIT)):
        first = first.when(problem == reasons[number], number)
    return F.when(problem.isNotNull(), first.otherwise(reasons.index(MISFIT)))


def rows_of(records: DataFrame, source: Input) -> DataFrame:
    """A row for each record that holds an object of the schema; the record itself without one."""
    if not source.schema:
        return records
    place = (F.col("partition").alias("_partition"), F.col("offset").alias("_offset"))
    return _objects(records.select("value", *place), source.schema, PLACE, source.needed)


def table_of(records: DataFrame, source: Input) -> DataFrame:
    """The newest value of each key; a key whose newest record has no value is not in the table."""
    rows = records.select("key", "value", *RECORD_ORDER.columns)
    newest = RECORD_ORDER.newest(rows, ["key"])
    return rows_of(newest.where(F.col("value").isNotNull()), source)


def records_of(rows: DataFrame, output: Output) -> DataFrame:
    """Key and value for the sink."""
    if output.as_records:
        return rows
    value = F.to_json(F.struct(*rows.columns), {"ignoreNullFields": "false"})
    key = F.concat_ws(KEY_SEPARATOR, *(F.col(name).cast("string") for name in output.key))
    return rows.select(
        (key if output.key else F.lit(None)).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def merged(changes: DataFrame, output: Output) -> DataFrame:
    """The content of a table when these changes have been merged into it."""
    found = changes
    if output.identity:
        found = TABLE_ORDER.newest(changes, output.identity).drop(NEWEST_TIME)
    return found.where(~F.col(DELETED)).drop(DELETED) if DELETED in found.columns else found


def result_of(records: DataFrame, output: Output, schema: StructType) -> DataFrame:
    """The content of an output: its rows, and of those with one identity the last one."""
    if output.as_records:
        return records
    ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema.fields)
    place = [
        F.col(name).alias(own)
        for name, own in zip(RECORD_ORDER.columns, LOG_ORDER.columns, strict=True)
    ]
    rows = _objects(records.select("value", *place), ddl, LOG_ORDER.columns)
    if output.identity:
        rows = LOG_ORDER.newest(rows, output.identity)
    return rows.select(*schema.names)


def _objects(
    records: DataFrame, ddl: str, others: tuple[str, ...], needed: Sequence[str] = ()
) -> DataFrame:
    """The fields of the objects as columns, and the columns `others` after them."""
    parsed = _parsed(records, ddl, *others).where(_problem(ddl, needed).isNull())
    return parsed.select(f"{OBJECT}.*", *others).drop(PROBLEM)


def _parsed(records: DataFrame, ddl: str, *others: str) -> DataFrame:
    """The columns `others`, and the object that the value is as one more.

    A generator makes it, which Spark's optimizer does not look into: of a plain expression it makes
    one for each field that is used later, and every one of them parses the value.
    """
    options = {"columnNameOfCorruptRecord": PROBLEM, "mode": "PERMISSIVE"}
    text = F.make_valid_utf8(F.col("value").cast("string"))
    # A record without a value, or with an empty one, is no object either.
    text = F.when(F.length(F.trim(text)) > 0, text).otherwise("?")
    found = F.from_json(text, f"{ddl}, {PROBLEM} string", options)
    return records.select(*others, F.inline(F.array(F.struct(found.alias(OBJECT)))))


def _problem(ddl: str, needed: Sequence[str] = ()) -> Column:
    """Why a parsed record is no row; null for one that is a row."""
    found, is_far = F.col(OBJECT), F.lit(False)
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType), f"columns {ddl}"
    for each in schema.fields:
        if each.dataType.typeName() in MOMENTS:
            is_far |= ~F.coalesce(within_years(found[each.name]), F.lit(True))
    missing = (F.when(found[name].isNull(), f"{name} is missing") for name in needed)
    return F.when(is_far, FAR_TIME).otherwise(F.coalesce(found[PROBLEM], *missing, F.lit(None)))


def within_years(moment: Column) -> Column:
    """Whether Python can hold a moment, and so reports and plots can; Spark's are of more years."""
    return F.year(moment).between(1, 9999)


def unusable(records: DataFrame, source: Input) -> DataFrame:
    """The newest records of a table's keys whose values are no objects of its schema."""
    newest = RECORD_ORDER.newest(records.select("key", "value", *RECORD_ORDER.columns), ["key"])
    parsed = _parsed(newest.where(F.col("value").isNotNull()), source.schema, *newest.columns)
    return parsed.where(_problem(source.schema, source.needed).isNotNull()).drop(OBJECT)


def total(numbers: str | Column) -> Column:
    """The sum of whole numbers, as a bigint; a sum that none can be is the one next to it.

    Spark's own ends the query with an error there, and again at each start.
    """
    column = F.col(numbers) if isinstance(numbers, str) else numbers
    exact = F.sum(column.cast("decimal(20, 0)"))
    least, greatest = F.lit(-(2**63)), F.lit(2**63 - 1)
    return (
        F.when(exact < least, least)
        .when(exact > greatest, greatest)
        .otherwise(exact.try_cast("bigint"))
    )


def once_within(rows: DataFrame, names: Sequence[str], late: str) -> DataFrame:
    """One row of each name; a stream forgets a name once the watermark has passed its time."""
    if not rows.isStreaming:
        return rows.dropDuplicates(list(names))
    return rows.withWatermark("time", late).dropDuplicatesWithinWatermark(list(names))
