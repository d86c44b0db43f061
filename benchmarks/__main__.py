"""Run the benchmarks: all of them, or those named (`python -m benchmarks clients latency`).

Each has a process of its own: none is measured with the threads, the memory or the JVM of another,
and one that fails does not keep the rest from being run.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks


def names() -> list[str]:
    """Every benchmark, by the part of its module's name after `bench_`."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    return sorted(
        module.name.removeprefix("bench_") for module in modules if module.name.startswith("bench_")
    )


def main(wanted: list[str]) -> int:
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(names())}")
        return 2
    failed = []
    for name in wanted or names():
        print(f"\n== {name}", flush=True)
        if subprocess.call([sys.executable, "-m", f"benchmarks.bench_{name}"]) != 0:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
