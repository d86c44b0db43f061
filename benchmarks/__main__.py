"""Run the benchmarks: all of them, or those named (`python -m benchmarks clients latency`)."""

from __future__ import annotations

import importlib
import pkgutil
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
    for name in wanted or names():
        print(f"\n== {name}", flush=True)
        sys.argv[1:] = []  # a benchmark that is run alone may have arguments of its own
        importlib.import_module(f"benchmarks.bench_{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
