"""A simulated world: brokers, the registry and clients in one process, on virtual time.

Everything that a world does follows from its seed: which process runs next, how long a message
travels, who crashes when. So a run that went wrong can be had again, exactly. Python's own order
of strings in sets depends on PYTHONHASHSEED, which has to be the same, too.
"""
