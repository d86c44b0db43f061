"""Records and record batches: their fields, and how batches look as bytes.

`record_batch` reads a batch, `batch_builder` writes one, `compression` holds the codecs, `columnar`
decodes many batches to Arrow columns. `kernel` has the loops that touch every record, compiled
where that is possible. Nothing here does I/O or keeps state between calls.
"""
