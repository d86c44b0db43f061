"""Converters and transforms beside Kafka's own classes: the same records in, the same bytes out."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from benchmarks.peers.downloads import PEERS, maven_jars, require

from ottla.connect.converters import SimpleHeaderConverter
from ottla.connect.data import Header, SinkRecord
from ottla.connect.json_converter import JsonConverter
from ottla.connect.plugins import BUILT_IN, CONVERTERS, TRANSFORMS, Plugins
from ottla.connect.value_text import from_text, to_text

PACKAGE = "org.apache.kafka.connect.transforms."
VALUE = {"a": 1, "b": None, "s": "x", "f": 1.5, "n": {"c": 2, "d": None}, "l": [1, 2], "ok": True}
FIELDS = [
    {"type": "int32", "optional": False, "field": "a"},
    {"type": "string", "optional": True, "default": "def", "field": "b"},
    {"type": "string", "optional": False, "field": "s"},
    {"type": "double", "optional": True, "field": "f"},
    {
        "type": "struct",
        "fields": [
            {"type": "int8", "optional": False, "field": "c"},
            {"type": "string", "optional": True, "default": "deep", "field": "d"},
        ],
        "optional": True,
        "name": "Inner",
        "field": "n",
    },
    {
        "type": "array",
        "items": {"type": "int32", "optional": False},
        "optional": False,
        "field": "l",
    },
    {"type": "boolean", "optional": True, "field": "ok"},
]
SCHEMA = {
    "type": "struct",
    "fields": FIELDS,
    "optional": False,
    "name": "S",
    "version": 3,
    "doc": "d",
    "parameters": {"p": "q"},
}
MS = 1_580_702_706_789


def simple(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True} | more


def logical(name: str, base: str) -> dict[str, Any]:
    return simple(base, name=f"org.apache.kafka.connect.data.{name}", version=1)


STAMP = logical("Timestamp", "int64")

# A transform with its settings, and what it works on: the struct above unless a schema is given.
FORMAT = {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSX"}
STRUCT_CASES: list[tuple[str, dict[str, str]]] = [
    (
        "InsertField",
        {
            "topic.field": "t!",
            "partition.field": "p?",
            "offset.field": "o",
            "timestamp.field": "at",
            "static.field": "who",
            "static.value": "me",
        },
    ),
    ("InsertField", {"topic.field": "t", "replace.null.with.default": "false"}),
    ("ReplaceField", {"exclude": "a,l", "renames": "b:bb,s:ss"}),
    ("ReplaceField", {"include": "a,b"}),
    ("ReplaceField", {"include": "a,b", "replace.null.with.default": "false"}),
    ("MaskField", {"fields": "a,s,f,ok,l"}),
    ("MaskField", {"fields": "a,s,f", "replacement": "42"}),
    ("HoistField", {"field": "h"}),
    ("ExtractField", {"field": "b"}),
    ("ExtractField", {"field": "n"}),
    ("ExtractField", {"field": "n.d", "field.syntax.version": "V2"}),
    ("Flatten", {}),
    ("Flatten", {"delimiter": "_"}),
    ("Cast", {"spec": "a:int8,s:string,f:int64,ok:int32"}),
    ("Cast", {"spec": "a:string,f:string,ok:string"}),
    ("Cast", {"spec": "a:float64,f:float32,ok:boolean"}),
    ("SetSchemaMetadata", {"schema.name": "T", "schema.version": "9"}),
    ("HeaderFrom", {"fields": "a,s", "headers": "x,y", "operation": "move"}),
    ("HeaderFrom", {"fields": "a,b", "headers": "x,y", "operation": "copy"}),
]
WHOLE_CASES: list[tuple[str, dict[str, str], dict[str, Any], Any]] = (
    [
        ("Cast", {"spec": kind}, simple(of), value)
        for of, value in (("int64", 7), ("double", 2.75), ("boolean", True), ("string", "12"))
        for kind in ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    ]
    + [
        ("Cast", {"spec": "string"}, logical("Date", "int32"), 18_295),
        ("Cast", {"spec": "string"}, logical("Time", "int32"), 1500),
        ("Cast", {"spec": "string"}, STAMP, MS),
        ("Cast", {"spec": "int64"}, STAMP, MS),
        ("Cast", {"spec": "string"}, simple("bytes"), "AP8="),
        ("SetSchemaMetadata", {"schema.name": "N"}, simple("int64"), 7),
        ("HoistField", {"field": "h"}, simple("string"), None),
    ]
    + [
        ("TimestampConverter", FORMAT | {"target.type": target} | more, schema, value)
        for target in ("string", "unix", "Date", "Time", "Timestamp")
        for more, schema, value in (
            ({}, STAMP, MS),
            ({"unix.precision": "microseconds"}, simple("int64"), MS * 1000 + 7),
            ({"unix.precision": "seconds"}, simple("int64"), MS // 1000),
            ({}, simple("string"), "2020-02-03T04:05:06.789Z"),
            ({}, logical("Date", "int32"), 18_295),
            ({}, logical("Time", "int32"), 1500),
            ({}, STAMP, None),
        )
    ]
)
LONE_CASES: list[tuple[str, dict[str, str]]] = [
    ("ValueToKey", {"fields": "b,a"}),
    ("RegexRouter", {"regex": "(.*)-(\\d)", "replacement": "$2.$1"}),
    ("RegexRouter", {"regex": "(.*?)", "replacement": "x$1"}),
    ("RegexRouter", {"regex": "nothing", "replacement": "x"}),
    ("TimestampRouter", {}),
    ("TimestampRouter", {"topic.format": "${timestamp}", "timestamp.format": "yyyy.MM.dd-EEE-H"}),
    ("InsertHeader", {"header": "h", "value.literal": "[1,2]"}),
    ("DropHeaders", {"headers": "one"}),
    ("Filter", {}),
]


def cases() -> list[dict[str, Any]]:
    """Every transform of a record with a schema and without one."""
    found = []
    for has_schemas in (True, False):
        content = {"schema": SCHEMA, "payload": VALUE} if has_schemas else VALUE
        for name, config in [(f"{name}$Value", c) for name, c in STRUCT_CASES] + LONE_CASES:
            if has_schemas or name != "SetSchemaMetadata$Value":
                found.append(case(name, config, has_schemas, value=content))
    for name, config, schema, value in WHOLE_CASES:
        content = {"schema": schema, "payload": value}
        found.append(case(f"{name}$Key", config, True, key=content))
    return found


def case(name: str, config: dict[str, str], has_schemas: bool, **parts: Any) -> dict[str, Any]:
    texts = {part: json.dumps(content) for part, content in parts.items()}
    return {
        "verb": "transform",
        "class": PACKAGE + name,
        "config": config,
        "schemas": has_schemas,
        "topic": "orders-7",
        "timestamp": MS,
        "key": None,
        "value": None,
        "headers": [["one", "1"], ["two", "a b"], ["one", "2020-02-03"]],
    } | texts


def ottla_transforms(given: dict[str, Any]) -> dict[str, Any]:
    """What the Java program does with a case, by Ottla's classes."""
    converter = JsonConverter.of({"schemas.enable": given["schemas"]})
    headers = SimpleHeaderConverter.of({})
    key, value = (
        converter.to_connect_data("t", given[part] and given[part].encode())
        for part in ("key", "value")
    )
    record = SinkRecord(
        topic=given["topic"],
        partition=2,
        offset=7,
        timestamp_ms=given["timestamp"],
        key=key.value,
        key_schema=key.schema,
        value=value.value,
        value_schema=value.schema,
        headers=tuple(
            Header(name, found.value, found.schema)
            for name, text in given["headers"]
            if (found := headers.to_connect_data("t", text.encode()))
        ),
    )
    made = Plugins().find(TRANSFORMS, given["class"]).of(given["config"]).apply(record)
    if made is None:
        return {"dropped": True}

    def written(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return {
        "topic": made.topic,
        "key": written(converter.from_connect_data("t", made.key_schema, made.key)),
        "value": written(converter.from_connect_data("t", made.value_schema, made.value)),
        "headers": [
            [each.key, written(headers.from_connect_data("t", each.schema, each.value))]
            for each in made.headers
        ],
    }


KAFKA_FAILS = (
    "Invalid type for Date, expected Date but was class java.lang.String",
    "Invalid type for Time, expected Date but was class java.lang.String",
    "Invalid type for Timestamp, expected Date but was class java.lang.String",
    "Invalid type for Timestamp, expected Date but was class java.lang.Long",
    "Cannot list fields on non-struct type",
)
"""What Kafka cannot do: write a time that was cast, and name what is no struct."""

HEADERS = (
    *("true", "false", "7", "-128", "128", "70000", "3000000000", "1.5", "0.1", "-2.25", "1e3"),
    *("1e300", "123456789012345678901234567890", "2020-02-03", "04:05:06.789Z", "hello", "a b"),
    *("2020-02-03T04:05:06.789Z", "[1,2]", "[1, 300]", "[1,2.5]", '["a","b"]', '{"a":1,"b":-2}'),
    *('{"a":[1],"b":[2]}', "[[1],[2]]", "{}", "", "[a]", "7 apples", "+5", "0.0", "[]"),
)
WRITTEN: list[tuple[str, str, dict[str, Any], Any]] = [
    ("json.JsonConverter", "true", simple("float"), 0.1),
    ("json.JsonConverter", "true", simple("double"), 1e10),
    ("json.JsonConverter", "true", simple("double"), 1.25e-7),
    ("json.JsonConverter", "true", simple("string"), 'ë\u001f\n"\\ \u2028 /'),
    ("json.JsonConverter", "true", simple("string", default="d"), None),
    ("json.JsonConverter", "false", simple("string"), None),
    ("json.JsonConverter", "true", simple("bytes"), "AP8="),
    ("json.JsonConverter", "true", STAMP, -1),
    ("json.JsonConverter", "true", SCHEMA, VALUE),
    ("json.JsonConverter", "false", SCHEMA, VALUE),
    (
        "json.JsonConverter",
        "true",
        simple("map", keys={"type": "int32"}, values={"type": "string"}),
        [[1, "a"]],
    ),
    (
        "json.JsonConverter",
        "true",
        logical("Decimal", "bytes") | {"parameters": {"scale": "2"}},
        "AJw=",
    ),
    ("storage.StringConverter", "true", simple("string"), "ë"),
    ("storage.StringConverter", "true", simple("double"), 1e10),
    ("storage.StringConverter", "true", simple("boolean"), True),
    ("storage.StringConverter", "true", SCHEMA, VALUE),
    ("converters.ByteArrayConverter", "true", simple("bytes"), "AP8="),
    ("converters.ShortConverter", "true", simple("int16"), -2),
    ("converters.IntegerConverter", "true", simple("int32"), 258),
    ("converters.LongConverter", "true", simple("int64"), -1),
    ("converters.FloatConverter", "true", simple("float"), 1.5),
    ("converters.DoubleConverter", "true", simple("double"), -0.1),
    ("converters.BooleanConverter", "true", simple("boolean"), True),
]


@pytest.fixture(scope="module")
def kafka():
    """Kafka's answers to many questions, of one program."""
    java = require("java", "a Java runtime, 17 or newer")
    jars = maven_jars("connect-4.2")
    program = PEERS / "java" / "connect-4.2" / "Connect.java"

    def ask(questions):
        done = subprocess.run(
            [java, "-cp", f"{jars}/*", str(program)],
            input="".join(json.dumps(each) + "\n" for each in questions),
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def comparable(answer: dict[str, Any], has_schemas: bool) -> dict[str, Any]:
    """Without schemas Java's maps are in no order: then the values count, not their bytes."""
    if has_schemas:
        return answer
    return {
        name: json.loads(text) if name in ("key", "value") and text is not None else text
        for name, text in answer.items()
    }


def test_transforms_are_kafkas(kafka):
    """Every transform, with and without schemas, of keys and values: byte for byte."""
    questions = cases()
    assert {each["class"].partition("$")[0] for each in questions} == (
        {name.partition("$")[0] for name in BUILT_IN[TRANSFORMS]}
    )
    different = []
    for given, theirs in zip(questions, kafka(questions), strict=True):
        try:
            ours = ottla_transforms(given)
        except Exception as error:
            ours = {"error": str(error)}
        if comparable(ours, given["schemas"]) == comparable(theirs, given["schemas"]):
            continue
        if "error" in ours or not any(text in theirs.get("error", "") for text in KAFKA_FAILS):
            different.append((given["class"], given["config"], ours, theirs))

    assert not different, "\n".join(map(str, different))


def test_headers_are_kafkas(kafka):
    """The type that is guessed of a text, and what is written of the value."""
    theirs = kafka([{"verb": "header", "text": text} for text in HEADERS])
    ours = []
    for text in HEADERS:
        schema, value = from_text(text)
        written = None if value is None else to_text(value, schema)
        ours.append(
            {"type": schema and schema.type.value, "name": schema and schema.name, "text": written}
        )

    assert dict(zip(HEADERS, ours, strict=True)) == dict(zip(HEADERS, theirs, strict=True))


def test_converters_are_kafkas(kafka):
    """The bytes of every converter."""
    questions = [
        {
            "verb": "convert",
            "class": f"org.apache.kafka.connect.{name}",
            "config": {"schemas.enable": "true"},
            "value": json.dumps({"schema": schema, "payload": value}),
        }
        for name, enabled, schema, value in WRITTEN
        if enabled == "true"
    ]
    assert {each["class"] for each in questions} == set(BUILT_IN[CONVERTERS])
    found = []
    for given in questions:
        read = JsonConverter().to_connect_data("t", given["value"].encode())
        data = Plugins().find(CONVERTERS, given["class"])().from_connect_data("t", *read)
        found.append({"bytes": None if data is None else data.hex()})

    theirs = kafka(questions)
    assert [
        (
            each["class"],
            bytes.fromhex(ours["bytes"]),
            their.get("error"),
            bytes.fromhex(their.get("bytes", "")),
        )
        for each, ours, their in zip(questions, found, theirs, strict=True)
        if ours != their
    ] == []
