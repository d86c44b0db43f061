"""What is said on the wire: every message, its versions and its bytes. Definitions only, no I/O.

One class per message holds all of its versions (`produce.ProduceRequest`); each field says in
which versions it exists. Bytes are made and read by code that is generated per message and
version on first use (`codegen`); `python -m ottla.protocol show ProduceRequest 9` prints it.
"""
