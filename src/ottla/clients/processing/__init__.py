"""`process` of the consumers: many records at once, in order per key, committed when finished."""
