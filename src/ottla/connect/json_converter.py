"""Values as JSON, byte for byte as Kafka's JsonConverter writes them.

With `schemas.enable` each record carries its schema: `{"schema":S,"payload":P}`; without it only
the payload stands there. Both ways are compiled once for each schema: a function made of the
functions of its parts. What Kafka would bend silently (a number that is too large, a text where a
number should be) is a DataError that leads to the place.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeVar

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.rule import Rule, at_least
from ottla.connect.converters import NOTHING, Converter, ConverterSettings
from ottla.connect.data import (
    BITS,
    DECIMAL_NAME,
    DataError,
    MisfitError,
    Schema,
    SchemaAndValue,
    SchemaField,
    SchemaType,
    bounded,
    from_base,
    shown,
    to_base,
    wrong,
)
from ottla.connect.value_text import float32, java_double, java_float

T = TypeVar("T")
Encode = Callable[[Any], str]
Decode = Callable[[Any], Any]

JSON_NAMES: Final = {kind: kind.value for kind in SchemaType} | {
    SchemaType.FLOAT32: "float",
    SchemaType.FLOAT64: "double",
}
_TYPES: Final = {name: kind for kind, name in JSON_NAMES.items()}
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMERIC: Final = "NUMERIC"
_BYTE_ORDER_MARK: Final = "\ufeff".encode()
_MAGIC: Final = b"\x00"
"""The first byte of what a converter with a schema registry writes."""


class JsonConverterSettings(ConverterSettings):
    """The settings of JsonConverter."""

    schemas_enable: bool = config_key(
        default=True,
        importance=HIGH,
        doc="Write the schema into each record, and expect it there.",
    )
    schemas_cache_size: int = config_key(
        default=1000,
        rule=at_least(1),
        importance=HIGH,
        doc="How many schemas are kept in their compiled form.",
    )
    schema_content: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The schema of all records that are read, as JSON: they carry none, and need no "
        "envelope. Only with schemas.enable.",
    )
    decimal_format: str = config_key(
        default="BASE64",
        rule=Rule("be BASE64 or NUMERIC", lambda text: text.upper() in ("BASE64", _NUMERIC)),
        importance=LOW,
        doc="How decimals are written: as the bytes of the unscaled number, or as a number. Both "
        "are read.",
    )
    replace_null_with_default: bool = config_key(
        default=True,
        importance=LOW,
        doc="Put a field's default in the place of a null.",
    )


class PreparedSchema(NamedTuple):
    """What is kept of a schema: how its envelope begins, and how values are written."""

    start: str
    encode: Encode


class JsonConverter(Converter):
    """JSON, with or without schemas."""

    Settings = JsonConverterSettings
    kafka_class = "org.apache.kafka.connect.json.JsonConverter"

    def __init__(self, settings: ConfigTable | None = None) -> None:
        super().__init__(settings)
        self._write = JsonWriter(
            is_numeric=self.settings.decimal_format.upper() == _NUMERIC,
            use_defaults=self.settings.replace_null_with_default,
        )
        self._read = JsonReader(use_defaults=self.settings.replace_null_with_default)
        self._prepared: dict[Schema, PreparedSchema] = {}
        self._envelopes = EnvelopeReader(self._read, self.settings.schemas_cache_size)
        content = self.settings.schema_content
        self._given = self._read.schema(_parsed(content.encode())) if content else None
        self._decode_given = self._read.decoder(self._given)

    # Writing

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        has_schemas = self.settings.schemas_enable
        if schema is None:
            payload = self._write.plain(value)
            text = f'{{"schema":null,"payload":{payload}}}' if has_schemas else payload
        else:
            start, encode = self._prepared.get(schema) or self._prepare(schema)
            payload = encode(value)
            text = f"{start}{payload}}}" if has_schemas else payload
        if "\\u00" in text:
            text = _upper_escapes(text)
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"value={shown(value)}: must be text without lone surrogates"
            ) from error

    def _prepare(self, schema: Schema) -> PreparedSchema:
        if len(self._prepared) >= self.settings.schemas_cache_size:
            del self._prepared[next(iter(self._prepared))]
        encode = self._write.encoder(schema)
        start = f'{{"schema":{self._write.schema(schema)},"payload":'
        found = self._prepared[schema] = PreparedSchema(start, encode)
        return found

    # Reading

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NOTHING
        data = data.removeprefix(_BYTE_ORDER_MARK)  # Jackson passes over it as well
        try:
            if not self.settings.schemas_enable:
                return SchemaAndValue(None, _parsed(data) if data else None)
            if self._given is not None:
                return SchemaAndValue(self._given, self._decode_given(_parsed(data, _EXACT)))
            return self._envelopes.read(data)
        except DataError as error:
            raise DataError(f"topic {topic}: {error.message}{_likely_cause(data)}") from error


def _likely_cause(data: bytes) -> str:
    if data[:1] == _MAGIC and len(data) > 5:
        return "; these bytes begin as those of a converter with a schema registry"
    return ""


def _upper_escapes(text: str) -> str:
    """Control characters as Jackson has them: \\u001F, where Python writes \\u001f."""
    parts = text.split("\\u00")
    for index in range(1, len(parts)):
        before = parts[index - 1]
        if (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            parts[index] = parts[index][:2].upper() + parts[index][2:]
    return "\\u00".join(parts)


def refuse_constant(word: str) -> Any:
    """NaN and Infinity, which Python takes for JSON."""
    raise ValueError(f"{word} is no number of JSON")


_PLAIN: Final = json.JSONDecoder(parse_constant=refuse_constant)


def _exact_number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("a number has too large an exponent") from None


_EXACT: Final = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_exact_number)
"""Keeps all digits of numbers with a point, which a decimal may need."""


def _parsed(data: bytes, decoder: json.JSONDecoder = _PLAIN) -> Any:
    """The JSON value in `data`."""
    try:
        return decoder.decode(data.decode())
    except (ValueError, RecursionError) as error:
        reason = "must be JSON" if data else "must be JSON, but there are no bytes"
        raise DataError(f"bytes {shown(data)}: {reason} ({error})") from None


def _has_decimals(schema: Schema | None) -> bool:
    if schema is None:
        return False
    inner = [*schema.by_name.values(), schema.key_schema, schema.value_schema]
    return schema.name == DECIMAL_NAME or any(map(_has_decimals, inner))


class JsonWriter:
    """Makes functions that write values as JSON, and writes schemas and values without one."""

    def __init__(self, is_numeric: bool, use_defaults: bool) -> None:
        self._is_numeric = is_numeric
        self._use_defaults = use_defaults
        self._simple: Mapping[type, Encode] = {
            type(None): lambda value: "null",
            bool: lambda value: "true" if value else "false",
            int: str,
            float: _json_double,
            str: encode_basestring,
            bytes: _json_bytes,
            bytearray: _json_bytes,
            memoryview: _json_bytes,
            list: self._plain_list,
            tuple: self._plain_list,
            dict: self._plain_map,
        }

    # Values without a schema

    def plain(self, value: Any) -> str:
        """A value without a schema."""
        encode = self._simple.get(type(value))
        if encode is not None:
            return encode(value)
        for base in type(value).__mro__:  # a class made of one of these is written as that
            if base in self._simple:
                return self._simple[base](value if base is str else base(value))
        raise MisfitError(
            value, f"a {type(value).__name__} must have a schema to be written as JSON"
        )

    def _plain_list(self, value: Collection[Any]) -> str:
        return f"[{','.join(_of_each(value, self.plain))}]"

    def _plain_map(self, value: Mapping[Any, Any]) -> str:
        """An object if all keys are text, else an array of pairs."""
        is_object = all(isinstance(key, str) for key in value)
        key: Any = None
        parts: list[str] = []
        try:
            for key, item in value.items():
                text = self.plain(item)
                start = encode_basestring(key) if is_object else self.plain(key)
                parts.append(f"{start}:{text}" if is_object else f"[{start},{text}]")
        except MisfitError as error:
            raise error.inside(f"[{shown(key)}]") from None
        return f"{{{','.join(parts)}}}" if is_object else f"[{','.join(parts)}]"

    # Values with a schema

    def encoder(self, schema: Schema) -> Encode:
        """The function that writes the values of a schema."""
        encode = self._encoder_of_values(schema)
        default = schema.default
        if default is not None and self._use_defaults:
            text = encode(default)
            return lambda value: text if value is None else encode(value)
        if schema.optional:
            return lambda value: "null" if value is None else encode(value)
        return encode

    def _encoder_of_values(self, schema: Schema) -> Encode:
        if schema.logical is not None:
            return self._logical_encoder(schema)
        match schema.type:
            case SchemaType.STRUCT:
                return self._struct_encoder(schema)
            case SchemaType.ARRAY:
                return self._array_encoder(schema)
            case SchemaType.MAP:
                return self._map_encoder(schema)
        if schema.type in BITS:
            return _integer_encoder(schema, 1 << BITS[schema.type] - 1)
        return _simple_encoder(schema)

    def _logical_encoder(self, schema: Schema) -> Encode:
        if schema.name == DECIMAL_NAME:
            if self._is_numeric:
                return lambda value: _numeric_decimal(schema, value)
            return lambda value: _json_bytes(to_base(schema, value))
        return lambda value: str(to_base(schema, value))

    def _struct_encoder(self, schema: Schema) -> Encode:
        fields = [
            (name, f"{',' if index else ''}{encode_basestring(name)}:", self.encoder(field))
            for index, (name, field) in enumerate(schema.fields)
        ]
        known = schema.by_name.keys()

        def encode(value: Any) -> str:
            if not isinstance(value, dict):
                raise wrong(value, schema)
            name, parts = "", ["{"]
            try:
                for name, start, of_field in fields:
                    parts.append(start)
                    parts.append(of_field(value.get(name)))
            except MisfitError as error:
                raise error.inside(f".{name}") from None
            if not value.keys() <= known:
                schema.refuse_unknown_fields(value)
            parts.append("}")
            return "".join(parts)

        return encode

    def _array_encoder(self, schema: Schema) -> Encode:
        of_items = self.encoder(schema.items)

        def encode(value: Any) -> str:
            if not isinstance(value, list | tuple):
                raise wrong(value, schema)
            return f"[{','.join(_of_each(value, of_items))}]"

        return encode

    def _map_encoder(self, schema: Schema) -> Encode:
        of_keys, of_items = self.encoder(schema.keys), self.encoder(schema.items)
        is_object = schema.keys.type is SchemaType.STRING
        pair, around = ("{}:{}", "{{{}}}") if is_object else ("[{},{}]", "[{}]")

        def encode(value: Any) -> str:
            if not isinstance(value, dict):
                raise wrong(value, schema)
            key: Any = None
            parts: list[str] = []
            try:
                for key, item in value.items():
                    parts.append(pair.format(of_keys(key), of_items(item)))
            except MisfitError as error:
                raise error.inside(f"[{shown(key)}]") from None
            return around.format(",".join(parts))

        return encode

    # Schemas

    def schema(self, schema: Schema, field: str | None = None) -> str:
        """A schema; that of a field of a struct ends with its name."""
        parts = [("type", encode_basestring(JSON_NAMES[schema.type]))]
        match schema.type:
            case SchemaType.ARRAY:
                parts.append(("items", self.schema(schema.items)))
            case SchemaType.MAP:
                parts += [
                    ("keys", self.schema(schema.keys)),
                    ("values", self.schema(schema.items)),
                ]
            case SchemaType.STRUCT:
                fields = ",".join(self.schema(each, name) for name, each in schema.fields)
                parts.append(("fields", f"[{fields}]"))
        parts.append(("optional", "true" if schema.optional else "false"))
        parts += [
            (key, self.plain(value))
            for key, value in (
                ("name", schema.name),
                ("version", schema.version),
                ("doc", schema.doc),
                ("parameters", dict(schema.parameters) or None),
            )
            if value is not None
        ]
        if schema.default is not None:
            parts.append(("default", self._encoder_of_values(schema)(schema.default)))
        if field is not None:
            parts.append(("field", encode_basestring(field)))
        return "{" + ",".join(f'"{key}":{text}' for key, text in parts) + "}"


def _json_double(value: float) -> str:
    text = java_double(value)
    return f'"{text}"' if text in _NO_NUMBERS else text


def _json_float(value: float) -> str:
    try:
        text = java_float(value)
    except OverflowError:
        raise MisfitError(value, "must be float32, which it is too large for") from None
    return f'"{text}"' if text in _NO_NUMBERS else text


def _json_bytes(value: Any) -> str:
    return f'"{b64encode(value).decode()}"'


def _of_each(items: Iterable[Any], function: Callable[[Any], T]) -> list[T]:
    """What a function makes of items; the MisfitError of one says which it is."""
    found: list[T] = []
    try:
        for item in items:
            found.append(function(item))
    except MisfitError as error:
        raise error.inside(f"[{len(found)}]") from None
    return found


def _numeric_decimal(schema: Schema, value: Any) -> str:
    return str(from_base(schema, to_base(schema, value)))


_FORMS: Final[Mapping[SchemaType, tuple[type, Encode]]] = {
    SchemaType.FLOAT32: (float, _json_float),
    SchemaType.FLOAT64: (float, _json_double),
    SchemaType.BOOLEAN: (bool, lambda value: "true" if value else "false"),
    SchemaType.STRING: (str, encode_basestring),
    SchemaType.BYTES: (bytes, _json_bytes),
}


def _integer_encoder(schema: Schema, limit: int) -> Encode:
    def encode(value: Any) -> str:
        if type(value) is int and -limit <= value < limit:
            return str(value)
        return _checked(schema, value, str)

    return encode


def _simple_encoder(schema: Schema) -> Encode:
    python, text_of = _FORMS[schema.type]

    def encode(value: Any) -> str:
        return text_of(value) if type(value) is python else _checked(schema, value, text_of)

    return encode


def _checked(schema: Schema, value: Any, encode: Encode) -> str:
    """The rare forms of a value: a whole number as a float, a bytearray; or the error."""
    if value is None:
        raise MisfitError(None, f"must be {schema}, which is required")
    schema.validate(value)
    is_float = schema.type in (SchemaType.FLOAT32, SchemaType.FLOAT64)
    return encode(float(value) if is_float else value)


class JsonReader:
    """Makes functions that turn parsed JSON into the values of a schema, and reads schemas."""

    def __init__(self, use_defaults: bool) -> None:
        self._use_defaults = use_defaults

    def decoder(self, schema: Schema | None) -> Decode:
        """The function that reads the values of a schema, from JSON parsed with exact numbers."""
        if schema is None:
            return _inexact
        decode = self._decoder_of_values(schema)
        default = schema.default if self._use_defaults else None
        if default is not None or schema.optional:
            return lambda value: deepcopy(default) if value is None else decode(value)
        return decode

    def _decoder_of_values(self, schema: Schema) -> Decode:
        if schema.logical is not None:
            return _logical_decoder(schema)
        match schema.type:
            case SchemaType.STRUCT:
                return self._struct_decoder(schema)
            case SchemaType.ARRAY:
                return self._array_decoder(schema)
            case SchemaType.MAP:
                return self._map_decoder(schema)
            case SchemaType.FLOAT32 | SchemaType.FLOAT64:
                return _float_decoder(schema)
            case SchemaType.BYTES:
                return lambda value: _decoded_bytes(schema, value)

        def decode(value: Any) -> Any:
            schema.validate(value)
            if value is None:
                raise MisfitError(None, f"must be {schema}, which is required")
            return value

        return decode

    def _struct_decoder(self, schema: Schema) -> Decode:
        fields = [(name, self.decoder(field)) for name, field in schema.fields]

        def decode(value: Any) -> dict[str, Any]:
            if type(value) is not dict:
                raise wrong(value, schema)
            name, found = "", {}
            try:
                for name, of_field in fields:
                    found[name] = of_field(value.get(name))
            except MisfitError as error:
                raise error.inside(f".{name}") from None
            return found

        return decode

    def _array_decoder(self, schema: Schema) -> Decode:
        of_items = self.decoder(schema.items)

        def decode(value: Any) -> list[Any]:
            if type(value) is not list:
                raise wrong(value, schema)
            return _of_each(value, of_items)

        return decode

    def _map_decoder(self, schema: Schema) -> Decode:
        of_keys, of_items = self.decoder(schema.keys), self.decoder(schema.items)
        is_object = schema.keys.type is SchemaType.STRING

        def decode(value: Any) -> dict[Any, Any]:
            key: Any = None
            try:
                pairs = value.items() if is_object else [(pair[0], pair[1]) for pair in value]
            except (AttributeError, TypeError, IndexError, KeyError):
                form = "an object" if is_object else "an array of pairs"
                raise MisfitError(value, f"must be {form} in JSON, for a map") from None
            found: dict[Any, Any] = {}
            try:
                for key, item in pairs:
                    found[of_keys(key)] = of_items(item)
            except MisfitError as error:
                raise error.inside(f"[{shown(key)}]") from None
            return found

        return decode

    def schema(self, found: Any) -> Schema | None:
        """The schema that JSON describes; None for null."""
        if found is None:
            return None
        if not isinstance(found, dict) or found.get("type") not in _TYPES:
            names = ", ".join(_TYPES)
            raise DataError(f"schema {shown(found)}: must be an object whose type is of {names}")
        bare = Schema(
            _TYPES[found["type"]],
            optional=found.get("optional") is True,
            name=_if(str, found.get("name")),
            version=_if(int, found.get("version")),
            doc=_if(str, found.get("doc")),
            parameters=_parameters(found),
            fields=self._fields(found) if found["type"] == "struct" else (),
            key_schema=self.schema(found.get("keys")),
            value_schema=self.schema(found.get("items") or found.get("values")),
        )
        default = found.get("default")
        if default is None:
            return bare
        return bare.replace(default=self._decoder_of_values(bare)(default))

    def _fields(self, found: Mapping[str, Any]) -> tuple[SchemaField, ...]:
        fields = found.get("fields")
        if not isinstance(fields, list):
            raise DataError(f"schema {shown(found)}: a struct must have a list of fields")
        return tuple(self._field(each) for each in fields)

    def _field(self, found: Any) -> SchemaField:
        name = found.get("field") if isinstance(found, dict) else None
        schema = self.schema(found)
        if not isinstance(name, str) or schema is None:
            raise DataError(f"schema {shown(found)}: must have the name of its field")
        return SchemaField(name, schema)


def _inexact(value: Any) -> Any:
    """A value without a schema, whose numbers were parsed as decimals: floats again."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_inexact(item) for item in value]
    if isinstance(value, dict):
        return {key: _inexact(item) for key, item in value.items()}
    return value


def _if(kind: type, value: Any) -> Any:
    return value if type(value) is kind else None


def _parameters(found: Mapping[str, Any]) -> dict[str, str]:
    parameters = _if(dict, found.get("parameters")) or {}
    for name, value in parameters.items():
        if not isinstance(value, str):
            raise DataError(f"schema parameter {name}={shown(value)}: must be a string")
    return parameters


def _decoded_bytes(schema: Schema, value: Any) -> bytes:
    if not isinstance(value, str):
        raise MisfitError(value, f"must be {schema}, as text in base64")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise MisfitError(value, f"must be {schema}, as text in base64") from None


def _float_decoder(schema: Schema) -> Decode:
    is_short = schema.type is SchemaType.FLOAT32

    def decode(value: Any) -> float:
        if isinstance(value, str) and value in _NO_NUMBERS:
            return _NO_NUMBERS[value]
        if type(value) not in (Decimal, float, int):
            raise wrong(value, schema)
        try:
            return float32(float(value)) if is_short else float(value)
        except OverflowError:
            raise wrong(value, schema) from None

    return decode


def _logical_decoder(schema: Schema) -> Decode:
    if schema.name == DECIMAL_NAME:
        return lambda value: _decoded_decimal(schema, value)

    def decode(value: Any) -> Any:
        if type(value) is not int:
            raise MisfitError(value, f"must be {schema}, as a whole number")
        return from_base(schema, value)

    return decode


def _decoded_decimal(schema: Schema, value: Any) -> Decimal:
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        try:
            return bounded(Decimal(value))
        except ValueError as error:
            raise MisfitError(value, f"must {error}") from None
    found: Decimal = from_base(schema, _decoded_bytes(schema, value))
    return found


class EnvelopeReader:
    """Reads `{"schema":S,"payload":P}`. The schemas that came last are known by their bytes.

    Records of one schema begin with the same bytes: of those only the payload is parsed.
    """

    def __init__(self, reader: JsonReader, size: int) -> None:
        self._reader = reader
        self._size = size
        self._known: dict[bytes, tuple[Schema | None, Decode, json.JSONDecoder]] = {}
        self._lengths: list[int] = []
        """How long the known beginnings are; the one that was found last stands first."""

    def read(self, data: bytes) -> SchemaAndValue:
        """The schema and the value in an envelope."""
        for index, length in enumerate(self._lengths):
            found = self._known.get(data[:length])
            if found is not None and data[-1:] == b"}":
                if index:
                    self._lengths.insert(0, self._lengths.pop(index))
                schema, decode, decoder = found
                try:
                    payload = _parsed(data[length:-1], decoder)
                except DataError:
                    break  # more follows the payload, or there is an error to be told of
                return SchemaAndValue(schema, decode(payload))
        return self._read_whole(data)

    def _read_whole(self, data: bytes) -> SchemaAndValue:
        found = _parsed(data, _EXACT)
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            raise DataError(
                f'bytes {shown(data)}: must be {{"schema":...,"payload":...}} and nothing else; '
                "for JSON without schemas set schemas.enable=false"
            )
        schema = self._reader.schema(found["schema"])
        decode = self._reader.decoder(schema)
        self._remember(data, schema, decode)
        return SchemaAndValue(schema, decode(found["payload"]))

    def _remember(self, data: bytes, schema: Schema | None, decode: Decode) -> None:
        text, start = data.decode(), '{"schema":'
        if not text.startswith((f"{start}{{", f"{start}null")):
            return  # written by hand, with blanks
        _, end = json.JSONDecoder().raw_decode(text, len(start))
        following = ',"payload":'
        if not text.startswith(following, end):
            return
        beginning = text[: end + len(following)].encode()
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        decoder = _EXACT if _has_decimals(schema) else _PLAIN
        self._known[beginning] = (schema, decode, decoder)
        self._lengths = sorted({len(beginning), *map(len, self._known)})
