"""The indexes of a segment: files beside its batches that say where in them to look."""
