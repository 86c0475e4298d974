"""The frames of Feishu's long connection: nine protobuf fields, written and read by hand. Knows varints and lengths and
nothing of connections; what a frame means is for `push` and `gateway`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

CONTROL, DATA = 0, 1
_U64, _I32 = (1 << 64) - 1, (1 << 31) - 1


class BadFrame(ValueError):
    """These bytes are no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One binary WebSocket message. `headers` keep their order; `header()` reads the first of a name."""

    method: int
    headers: tuple[tuple[str, str], ...] = ()
    payload: bytes = b""
    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    payload_encoding: str = ""
    payload_type: str = ""
    log_id_new: str = ""

    def header(self, key: str) -> str:
        return next((value for name, value in self.headers if name == key), "")

    def with_payload(self, payload: bytes, *headers: tuple[str, str]) -> Frame:
        """The same frame with another payload and more headers: how an acknowledgement is made."""
        return replace(self, payload=payload, headers=self.headers + headers)


def encode(frame: Frame) -> bytes:
    """The frame's bytes; fields 1 to 4 are required and always there, empty strings are left out."""
    parts = [_number(1, frame.seq_id), _number(2, frame.log_id), _number(3, frame.service), _number(4, frame.method)]
    parts += [_bytes(5, _bytes(1, k.encode()) + _bytes(2, v.encode())) for k, v in frame.headers]
    texts = ((6, frame.payload_encoding.encode()), (7, frame.payload_type.encode()), (8, frame.payload))
    parts += [_bytes(field, text) for field, text in (*texts, (9, frame.log_id_new.encode())) if text]
    return b"".join(parts)


def decode(data: bytes) -> Frame:
    """Read one frame; unknown fields are skipped. Raises BadFrame when the bytes are cut, no protobuf, or lack a
    required field."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    headers: list[tuple[str, str]] = []
    try:
        for field, value in _fields(data):
            if field == 5 and isinstance(value, bytes):
                pair = dict(_fields(value))
                headers.append((_text(pair.get(1, b"")), _text(pair.get(2, b""))))
            elif isinstance(value, int):
                numbers[field] = value
            else:
                texts[field] = value
        return Frame(
            seq_id=numbers[1],
            log_id=numbers[2],
            service=_signed(numbers[3]),
            method=_signed(numbers[4]),
            headers=tuple(headers),
            payload_encoding=_text(texts.get(6, b"")),
            payload_type=_text(texts.get(7, b"")),
            payload=texts.get(8, b""),
            log_id_new=_text(texts.get(9, b"")),
        )
    except (KeyError, IndexError, UnicodeDecodeError) as e:
        raise BadFrame("these bytes are no frame: a part is missing, cut or no UTF-8") from e


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise BadFrame("these bytes are no frame: a number where a text belongs")
    return value.decode()


def _signed(value: int) -> int:
    return value - (1 << 64) if value > _I32 else value


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= _U64  # a negative int32 goes out as ten bytes
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise BadFrame("these bytes are no frame: a number of more than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        value: int | bytes
        match key & 7:
            case 0:
                value, at = _read_varint(data, at)
            case 2:
                length, at = _read_varint(data, at)
                value, at = _slice(data, at, length)
            case 1 | 5 as wire:
                value, at = _slice(data, at, 8 if wire == 1 else 4)
            case wire:
                raise BadFrame(f"these bytes are no frame: wire type {wire}")
        yield key >> 3, value


def _slice(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise BadFrame("these bytes are no frame: cut short")
    return data[at : at + length], at + length
