"""`ottla dump-log` on the files of a running broker."""


def dump(run, *words: object) -> list[str]:
    """The lines of a dump that finds nothing wrong."""
    done = run("dump-log", "--files", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_files_of_a_partition_are_dumped(run, broker, ottla, narrow):
    """Segment, indexes and checkpoint."""
    parse = ("--property", "parse.key=true")
    ottla("console-producer", "--topic", narrow, *parse, stdin="k1\tv1\nk2\tv2\n")
    folder = broker.data_dir / f"{narrow}-0"
    stem = folder / ("0" * 20)

    lines = dump(run, f"{stem}.log", "--print-data-log")

    assert lines[1] == "Starting offset: 0"
    assert lines[2].startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 ")
    assert lines[2].endswith(" isvalid: true")
    assert lines[3].startswith("| offset: 0 CreateTime: ")
    assert lines[3].endswith(" sequence: 0 headerKeys: [] key: k1 payload: v1")
    assert lines[4].endswith(" sequence: 1 headerKeys: [] key: k2 payload: v2")
    for suffix in ("index", "timeindex"):
        path = f"{stem}.{suffix}"
        assert dump(run, path, "--index-sanity-check")[1] == f"{path} passed sanity check."


def test_files_of_a_stopped_broker_are_dumped(run, start_broker):
    """Indexes with entries, the snapshot of the producers, the leader epochs."""
    broker = start_broker(log_index_interval_bytes=100)
    words = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--sync")
    run("console-producer", *words, stdin="".join(f"{n}\n" for n in range(20)))
    broker.stop()
    folder = broker.data_dir / "t-0"
    stem = folder / ("0" * 20)

    offsets = dump(run, f"{stem}.index")[1:]
    times = dump(run, f"{stem}.timeindex")[1:]

    assert offsets
    assert all(line.startswith("offset: ") for line in offsets)
    assert times[-1].endswith(" offset: 19")
    assert dump(run, folder / "leader-epoch-checkpoint")[1:] == ["epoch: 0 startOffset: 0"]
    snapshot = dump(run, f"{folder}/{20:020d}.snapshot")[1]
    assert " firstSequence: 19 lastSequence: 19 lastOffset: 19 offsetDelta: 0 " in snapshot


def test_commits_are_dumped(run, broker, narrow, group):
    """The offsets topic holds commits, and groups with who was assigned what."""
    files = [str(path) for path in broker.data_dir.glob("__consumer_offsets-*/*.log")]

    lines = dump(run, ",".join(files), "--offsets-decoder")

    assert any(line.endswith(f" key: offset::{group}:{narrow}:0 payload: 10") for line in lines)
    assert any(
        f'key: {{"metadata":"{group}"}} payload: {{"protocolType":"consumer"' in line
        and f"=[{narrow}-0]" in line
        for line in lines
    )
