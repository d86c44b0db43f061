"""Lakehouse tables filled from topics: files and offsets in one commit, each record once.

`WarehouseLoad` carries topics into a table and keeps its offsets in the table; `AppendSink` and
`MergeSink` are for streaming queries of any kind. docs/use/warehouse.md has the guarantees after a
crash.
"""
