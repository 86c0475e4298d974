"""The hand-written frame against the real client's own protobuf class."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amux.sandbox import frames
from amux.sandbox.frames import BadFrame, Frame

U64 = st.integers(0, (1 << 64) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
FRAMES = st.builds(
    Frame,
    method=I32,
    headers=st.lists(st.tuples(st.text(), st.text())).map(tuple),
    payload=st.binary(),
    seq_id=U64,
    log_id=U64,
    service=I32,
    payload_encoding=st.text(),
    payload_type=st.text(),
    log_id_new=st.text(),
)


class Headers(Protocol):
    def add(self, *, key: str, value: str) -> object: ...


class Theirs(Protocol):
    """lark-oapi's own frame, as far as it is used here."""

    headers: Headers

    def ParseFromString(self, data: bytes) -> object: ...  # noqa: N802  theirs
    def SerializeToString(self) -> bytes: ...  # noqa: N802


Oracle = Callable[..., Theirs]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    made: Oracle = importlib.import_module("lark_oapi.ws.pb.pbbp2_pb2").Frame
    return made


def as_oracle(oracle: Oracle, frame: Frame) -> Theirs:
    theirs = oracle(SeqID=frame.seq_id, LogID=frame.log_id, service=frame.service, method=frame.method)
    texts: dict[str, str | bytes] = {"payload_encoding": frame.payload_encoding, "payload_type": frame.payload_type}
    texts |= {"payload": frame.payload, "LogIDNew": frame.log_id_new}
    for field, value in texts.items():
        if value:
            setattr(theirs, field, value)
    for key, value in frame.headers:
        theirs.headers.add(key=key, value=value)
    return theirs


@settings(max_examples=60, deadline=None)  # their protobuf is pure Python, and slow
@given(frame=FRAMES)
def test_the_real_client_reads_what_we_write_and_we_what_it_writes(oracle: Oracle, frame: Frame) -> None:
    theirs = as_oracle(oracle, frame)
    read = oracle()
    read.ParseFromString(frames.encode(frame))
    assert read == theirs
    assert frames.decode(theirs.SerializeToString()) == frame


@given(frame=FRAMES)
def test_a_frame_comes_back_as_it_went(frame: Frame) -> None:
    assert frames.decode(frames.encode(frame)) == frame


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        frames.decode(data)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_frame_cut_short_is_refused(cut: int) -> None:
    whole = frames.encode(Frame(method=1, headers=(("type", "event"),), payload=b"0123456789"))
    with pytest.raises(BadFrame):
        frames.decode(whole[:-cut])


def test_an_acknowledgement_keeps_all_but_the_payload() -> None:
    headers = (("type", "event"), ("message_id", "m"))
    pushed = Frame(method=1, headers=headers, payload=b"{}", seq_id=7, log_id=8, service=9)
    acked = pushed.with_payload(b'{"code":200}', ("biz_rt", "3"))
    assert acked == replace(pushed, payload=b'{"code":200}', headers=(*pushed.headers, ("biz_rt", "3")))
    assert acked.header("biz_rt") == "3"
    assert pushed.header("biz_rt") == ""
