"""`ottla pipeline reset`: the pipeline starts from scratch, over the same input."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.pipeline.run import BROKER_DATA, REPORT, SPARK_LOG, Plan, brokers
from ottla.cli.pipeline.steps import Steps
from ottla.cli.terminal import Terminal
from ottla.pipelines.execution import CHECKPOINTS, TABLES, RunOptions
from ottla.pipelines.topics import delete_outputs

if TYPE_CHECKING:
    from ottla.pipelines.pipeline import Pipeline


def reset(pipeline: Pipeline, output: Path, servers: str | None, terminal: Terminal) -> int:
    """Delete output topics, checkpoints with their state, tables and report; the input stays."""
    folder = output / pipeline.name
    if servers is not None or (folder / BROKER_DATA).exists():
        plan = Plan(pipeline, folder, None, RunOptions(), servers)
        with brokers(plan, Steps(terminal)) as found:
            for topic in delete_outputs(found, pipeline):
                terminal.print(f"deleted the topic {topic}")
    for name in remove_results(pipeline, folder):
        terminal.print(f"deleted {folder / name}")
    return 0


def remove_results(pipeline: Pipeline, folder: Path) -> list[str]:
    """Remove the results of runs and nothing else: the folder may hold other files."""
    removed = []
    for name in (CHECKPOINTS, TABLES, *(section.name for section in pipeline.sections)):
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
            removed.append(name)
    for name in (REPORT, SPARK_LOG):
        if (folder / name).exists():
            (folder / name).unlink()
            removed.append(name)
    return removed
