"""Imports point one way, and calls to the outside world stay in their rooms (ARCHITECTURE.md)."""

from __future__ import annotations

import ast

from sources import Source, house

FOUNDATION = {"structs", "named_tuple", "errors", "version", "compiled", "late_names"}
BROKER_SIDE = FOUNDATION | {"runtime", "config", "protocol", "record", "security"}
CLIENT_SIDE = BROKER_SIDE | {"network"}
USES_CLIENTS = CLIENT_SIDE | {"clients"}

# Which rooms a room may import; a room may always import itself.
ARROWS = {
    "structs": {"named_tuple"},
    "named_tuple": set(),
    "errors": set(),
    "version": set(),
    "compiled": set(),
    "late_names": set(),
    "runtime": FOUNDATION,
    "config": FOUNDATION | {"runtime"},
    "protocol": FOUNDATION | {"runtime"},
    "record": FOUNDATION | {"runtime", "protocol"},
    "security": FOUNDATION | {"runtime", "config", "protocol"},
    "metrics": FOUNDATION | {"runtime", "config", "security"},
    "log": BROKER_SIDE,
    "registry": BROKER_SIDE,
    "network": BROKER_SIDE,
    "replication": BROKER_SIDE | {"log", "registry", "network"},
    "coordinator": BROKER_SIDE | {"log", "registry", "network", "replication"},
    "controller": BROKER_SIDE | {"log", "registry", "network", "replication"},
    "server": BROKER_SIDE
    | {"log", "registry", "network", "replication", "coordinator", "controller", "metrics"},
    "extensions": BROKER_SIDE
    | {"log", "registry", "network", "replication", "coordinator", "controller", "metrics"}
    | {"server"},
    "clients": CLIENT_SIDE | {"metrics"},
    "aio": USES_CLIENTS,
    "tracing": USES_CLIENTS,
    "connect": USES_CLIENTS | {"metrics"},
    "spark": USES_CLIENTS,
    "warehouse": USES_CLIENTS | {"spark"},
    "pipelines": USES_CLIENTS | {"spark", "warehouse"},
    "streams": USES_CLIENTS | {"spark", "pipelines"},
    "mirror": USES_CLIENTS | {"connect", "metrics"},
    "testing": BROKER_SIDE
    | {"log", "registry", "network", "replication", "coordinator", "controller", "server"}
    | {"clients", "connect"},
    "console": USES_CLIENTS,
    "site": USES_CLIENTS | {"spark", "warehouse", "pipelines", "testing"},
    "cli": USES_CLIENTS
    | {
        "log",
        "server",
        "spark",
        "warehouse",
        "pipelines",
        "streams",
        "testing",
        "mirror",
        "connect",
        "console",
        "site",
    },
    "__init__": USES_CLIENTS,
    "__main__": {"cli"},
}

# A part of a room that may import more than the rest of it: the clients of the 0.7 design have
# their groups in ZooKeeper, and so have tools what they read and ask for there with --zookeeper.
PARTS = {
    "src/ottla/clients/legacy/": {"registry"},
    "src/ottla/console/redriving.py": {"connect"},
    "src/ottla/console/zookeeper_node.py": {"registry"},
    "src/ottla/cli/reassign_partitions.py": {"controller"},
    "src/ottla/cli/zookeeper_": {"registry"},
    "src/ottla/cli/users.py": {"registry", "controller"},
    "src/ottla/cli/registry_files.py": {"registry"},
}

# A call or module, the rooms that may use it, and what the others use instead.
BANNED = [
    ("time", {"runtime", "cli", "testing", "pipelines", "site"}, "runtime.clock"),
    ("random", {"runtime", "testing", "pipelines", "site"}, "runtime.random"),
    ("socket", {"runtime", "network", "testing", "cli", "pipelines"}, "runtime.network"),
    (
        "threading",
        {"runtime", "network", "testing", "cli", "pipelines", "site"},
        "runtime.background",
    ),
    ("subprocess", {"runtime", "cli", "connect", "testing", "pipelines", "site"}, "a command"),
]
BANNED_OPEN = {"log", "registry", "replication", "coordinator", "controller", "server", "clients"}
LEFTOVERS = ("TODO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "NotImplemented" + "Error")
NAMES_THAT_SAY_NOTHING = {"helper", "helpers", "utils", "util", "misc", "impl", "common", "v2"}


def imported_modules(source: Source) -> list[tuple[int, str]]:
    """Line and dotted name of every import, also those inside functions."""
    found = []
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [
                (
                    node.lineno,
                    f"{node.module}.{alias.name}" if node.module == "ottla" else node.module,
                )
                for alias in node.names
            ]
    return found


def room_of(name: str) -> str:
    """The room of a dotted name; the clients are also exported by the package itself."""
    part = name.split(".")[1]
    if part == "__version__":
        return "version"
    return "clients" if part[0].isupper() else part


def is_for_types_only(source: Source, lineno: int) -> bool:
    """Whether the import stands under `if TYPE_CHECKING:`."""
    return any(
        isinstance(node, ast.If)
        and "TYPE_CHECKING" in ast.unparse(node.test)
        and node.lineno < lineno <= (node.end_lineno or 0)
        for node in source.tree.body
    )


def allowed(source: Source) -> set[str]:
    """The rooms that a file may import."""
    rooms = set(ARROWS.get(source.room, set()))
    for part, more in PARTS.items():
        if source.name.startswith(part):
            rooms |= more
    return rooms


def test_imports_follow_the_arrows():
    """A room imports only the rooms below it."""
    assert not [
        f"{source.name}:{line} imports {name}"
        for source in house()
        for line, name in imported_modules(source)
        if name.startswith("ottla.")
        and (room := room_of(name)) != source.room
        and room not in allowed(source)
        and not is_for_types_only(source, line)
    ]


def imports() -> dict[str, set[str]]:
    """The modules that each module imports, anywhere in it; what a package exports is left out."""
    names = {
        source.name.removeprefix("src/").removesuffix(".py").replace("/", "."): source
        for source in house()
        if source.path.name != "__init__.py"
    }
    return {
        name: {
            found
            for node in source.nodes
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
            for found in (f"{node.module}.{alias.name}", node.module)
            if found in names
        }
        for name, source in names.items()
    }


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules each of which reaches all others."""
    reached = {}
    for name in graph:
        seen, ahead = set(), [name]
        while ahead:
            following = graph[ahead.pop()] - seen
            seen |= following
            ahead += following
        reached[name] = seen
    groups = {
        frozenset(other for other in seen if name in reached[other])
        for name, seen in reached.items()
        if name in seen
    }
    return [set(group) for group in groups]


def test_imports_go_round_in_no_circle():
    """Files that import each other, if only for types, are read and changed only together."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    assert not circles(imports())


def test_every_room_has_its_arrows():
    """A new room says here what it may import."""
    assert {source.room for source in house()} <= set(ARROWS)


def test_the_outside_world_comes_in_through_the_runtime():
    """Clock, randomness, sockets and threads are used in their own rooms only."""
    assert not [
        f"{source.name}:{line} imports {name}; use {instead}"
        for source in house()
        for line, name in imported_modules(source)
        for module, rooms, instead in BANNED
        if name.split(".")[0] == module and source.room not in rooms
    ]


def test_named_tuples_are_cheap_where_a_start_needs_them():
    """Commands, broker and clients take those of `named_tuple`; the rooms above them need not."""
    rooms = BROKER_SIDE | {"log", "registry", "network", "replication", "coordinator", "controller"}
    quick = rooms | {"server", "extensions", "metrics", "clients", "cli", "console"}
    assert not [
        f"{source.name}:{node.lineno} imports NamedTuple of typing"
        for source in house()
        if source.room in quick - {"named_tuple"}
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        if "NamedTuple" in {alias.name for alias in node.names}
    ]


def test_files_are_opened_by_the_disk():
    """Rooms that keep state never open a file on their own."""
    assert not [
        f"{source.name}:{node.lineno} calls open; use runtime.disk"
        for source in house()
        if source.room in BANNED_OPEN
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def test_no_work_is_left_over():
    """Nothing unfinished is marked and left behind."""
    assert not [
        f"{source.name}: {word}" for source in house() for word in LEFTOVERS if word in source.text
    ]


def test_names_say_something():
    """No module or class has a name that says nothing."""
    assert not [
        source.name
        for source in house()
        if NAMES_THAT_SAY_NOTHING & set(source.path.stem.split("_"))
    ]


def test_modules_and_public_classes_say_what_they_are():
    """Every module and public class has a docstring."""
    missing = [source.name for source in house() if not ast.get_docstring(source.tree)]
    missing += [
        f"{source.name}:{node.lineno} {node.name}"
        for source in house()
        for node in source.classes
        if not node.name.startswith("_") and not ast.get_docstring(node)
    ]

    assert not missing
