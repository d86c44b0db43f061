"""A simulated world: brokers, the registry and clients in one process, on virtual time.

Everything that a world does follows from its seed: which process runs next, how long a message
travels, which process crashes when. So a failed run can be repeated exactly. Python's own order
of strings in sets depends on PYTHONHASHSEED, which must be the same, too.
"""

HASH_SEED = "PYTHONHASHSEED"
