"""The wire protocol: every message, its versions and its bytes. Definitions only, no I/O.

One class per message holds all of its versions (`produce.ProduceRequest`); each field says in
which versions it exists. The code that encodes and decodes a version of a message is generated
on first use (`codegen`); `python -m ottla.protocol show ProduceRequest 9` prints it.
"""
