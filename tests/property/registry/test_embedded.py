"""Whatever happens to the disk, the registry has what it acknowledged."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import RegistryError, RegistryFailedError
from ottla.testing import mock_runtime

PATHS = ["/a", "/b", "/a/c", "/b/d"]
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["create", "set", "delete"]), st.sampled_from(PATHS), st.binary()),
    max_size=30,
)


def apply(tree: dict[str, bytes], operation: tuple[str, str, bytes]) -> dict[str, bytes]:
    """What a dictionary of paths looks like after an operation that succeeded."""
    verb, path, data = operation
    changed = dict(tree)
    if verb == "delete":
        del changed[path]
    else:
        changed[path] = data
    return changed


async def contents(registry: EmbeddedRegistry) -> dict[str, bytes]:
    """All paths with their data."""
    found = {}
    for path in PATHS:
        if await registry.exists(path) is not None:
            found[path], _ = await registry.get(path)
    return found


@given(
    lives=st.lists(OPERATIONS, min_size=1, max_size=3),
    fault=st.sampled_from(["pwrite", "fsync", "none"]),
    skip=st.integers(0, 10),
    seed=st.integers(0, 1000),
)
def test_acknowledged_writes_survive_any_crash(lives, fault, skip, seed):
    """After each crash: all acknowledged writes, and at most the one that was under way."""
    runtime, chance = mock_runtime(seed), random.Random(seed)
    acknowledged: dict[str, bytes] = {}
    for operations in lives:
        registry = EmbeddedRegistry(runtime, "/data/registry")
        runtime.scheduler.run(registry.start())
        runtime.disk.faults.clear()
        if fault != "none":
            runtime.disk.fail(fault, "*/journal", skip=skip)
        possible = acknowledged
        for operation in operations:
            verb, path, data = operation
            arguments = (path,) if verb == "delete" else (path, data)
            try:
                runtime.scheduler.run(getattr(registry, verb)(*arguments))
            except RegistryFailedError:
                possible = apply(acknowledged, operation)
                break
            except RegistryError:
                continue
            acknowledged = possible = apply(acknowledged, operation)
        runtime.disk.crash(chance)
        runtime.disk.faults.clear()
        registry = EmbeddedRegistry(runtime, "/data/registry")
        runtime.scheduler.run(registry.start())
        found = runtime.scheduler.run(contents(registry))

        assert found in (acknowledged, possible)
        acknowledged = found
        runtime.scheduler.run(registry.close())
