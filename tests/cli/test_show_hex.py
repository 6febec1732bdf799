"""`odradek show --hex`: lines of JSON to bytes and back, and frames in readable form."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.show import EXAMPLES
from odradek.protocol.batch_documents import batches_to_documents
from odradek.protocol.compiler import encode
from odradek.protocol.framing import frame
from odradek.protocol.headers import ResponseHeader
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.records import Record, build_batch
from tests.cli.conftest import Odradek
from tests.patience import PATIENCE_S
from tests.protocol.vector_files import (
    COORDINATOR_FILES,
    MESSAGE_FILES,
    coordinator_vectors,
    message_vectors,
)

ShowLines = Callable[..., list[dict[str, Any]]]
"""Arguments and lines -> an object for each line."""
SHOW_HEX = [sys.executable, "-m", "odradek.cli", "show", "--hex"]


@pytest.fixture
def show_lines(run_odradek: Odradek, monkeypatch: pytest.MonkeyPatch) -> ShowLines:
    """Shows lines from stdin; a line is an object, or raw bytes."""

    def show(*arguments: str, lines: list[Any]) -> list[dict[str, Any]]:
        raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"".join(line + b"\n" for line in raw))))
        status, out, err = run_odradek("show", "--hex", *arguments)
        assert (status, err) == (0, "")
        found = [json.loads(line) for line in out.splitlines()]
        assert len(found) == len(lines)
        return found

    return show


def all_vectors() -> list[dict[str, Any]]:
    vectors = [vector for name in MESSAGE_FILES for vector in message_vectors(name)]
    records = [name for name in COORDINATOR_FILES if name != "default_partitions"]
    return vectors + [vector for name in records for vector in coordinator_vectors(name)]


def test_decode_adds_the_fields_to_every_line_in_order(show_lines: ShowLines) -> None:
    vectors = all_vectors()
    asked = [{name: value for name, value in vector.items() if name != "fields"} for vector in vectors]
    assert show_lines(lines=asked) == vectors


def test_encode_adds_the_bytes_to_every_line_in_order(show_lines: ShowLines) -> None:
    vectors = all_vectors()
    asked = [{name: value for name, value in vector.items() if name != "hex"} for vector in vectors]
    assert show_lines("--encode", lines=asked) == vectors


def test_a_coordinator_record_contains_its_version(show_lines: ShowLines) -> None:
    [answer] = show_lines(lines=[{"name": "GroupMetadataKey", "hex": "0002000141"}])
    assert answer == {"name": "GroupMetadataKey", "hex": "0002000141", "version": 2, "fields": {"group": "A"}}
    [answer] = show_lines(lines=[{"name": "GroupMetadataKey", "version": 3, "hex": "0002000141"}])
    assert "begin with version 2" in answer["error"]


def test_whole_frames_are_decoded_and_encoded(show_lines: ShowLines) -> None:
    frames = list(message_vectors("frames"))
    without = [{name: line[name] for name in line if name not in ("header", "fields")} for line in frames]
    assert show_lines(lines=without) == frames
    without = [{name: line[name] for name in line if name != "hex"} for line in frames]
    assert show_lines("--encode", lines=without) == frames


def test_bytes_after_the_body_are_counted(show_lines: ShowLines) -> None:
    [answer] = show_lines(lines=[{"name": "HeartbeatResponse", "version": 0, "hex": "0005ffff"}])
    assert (answer["fields"], answer["rest"]) == ({"ErrorCode": 5}, 2)


BAD_LINES: list[tuple[Any, str]] = [
    (b"", "not JSON"),
    (b"   ", "not JSON"),
    (b"hello", "not JSON"),
    (b"\xff\xfe\x00", "not JSON"),
    (b"[1, 2]", "expected a JSON object"),
    (b"null", "expected a JSON object"),
    (b'{"name": ' + b"[" * 100_000, "RecursionError"),
    (b'{"version": ' + b"9" * 5000 + b"}", "digits"),
    (b'{"name": "\\ud800", "version": 0, "hex": ""}', "no message is named"),
    ({}, "must name its message"),
    ({"apiKey": 1, "version": 0, "hex": ""}, "`type` must be"),
    ({"apiKey": 1, "type": ["request"], "version": 0, "hex": ""}, "`type` must be"),
    ({"apiKey": 1000, "type": "request", "version": 0, "hex": ""}, "unknown API key"),
    ({"apiKey": {}, "type": "request", "version": 0, "hex": ""}, "unknown API key"),
    ({"name": "Nothing", "version": 0, "hex": ""}, "no message is named"),
    ({"name": 5, "version": 0, "hex": ""}, "must name its message"),
    ({"name": "FetchRequest", "hex": ""}, "`version` must be a number"),
    ({"name": "FetchRequest", "version": "11", "hex": ""}, "`version` must be a number"),
    ({"name": "FetchRequest", "version": 99, "hex": ""}, "FetchRequest has versions 0 to 18, not 99"),
    ({"name": "FetchRequest", "version": 11}, "`hex` must be a string"),
    ({"name": "FetchRequest", "version": 11, "hex": "0g"}, "is not hexadecimal"),
    ({"name": "FetchRequest", "version": 11, "hex": "000"}, "is not hexadecimal"),
    ({"name": "FetchRequest", "version": 11, "hex": "0000"}, "truncated at byte 2"),
    ({"name": "OffsetCommitKey", "hex": "00"}, "at least a version"),
    ({"name": "OffsetCommitKey", "hex": "0009"}, "OffsetCommitKey has versions"),
    ({"name": "OffsetCommitKey", "headerVersion": 1, "hex": "0001"}, "truncated at byte 2"),
    ({"name": "FetchRequest", "version": 4, "headerVersion": 1, "hex": "0000000500"}, "the frame's length is 5"),
    ({"name": "FetchRequest", "version": 4, "headerVersion": 9, "hex": "0000000100"}, "RequestHeader has versions"),
    ({"name": "RequestHeader", "version": 2, "headerVersion": 1, "hex": "00"}, "is not sent in a frame"),
]


def test_bad_lines_are_answered_with_an_error_and_the_next_line_is_read(show_lines: ShowLines) -> None:
    good = {"name": "HeartbeatResponse", "version": 0, "hex": "0005"}
    lines = [line for bad, _ in BAD_LINES for line in (bad, good)]
    found = show_lines(lines=lines)
    for (bad, complaint), answer in zip(BAD_LINES, found[::2], strict=True):
        assert complaint in answer["error"], (bad, answer)
        assert "fields" not in answer
    assert all(answer == {**good, "fields": {"ErrorCode": 5}} for answer in found[1::2])


def test_a_line_that_cannot_be_encoded_is_answered_with_an_error(show_lines: ShowLines) -> None:
    lines: list[Any] = [
        {"name": "HeartbeatResponse", "version": 0},
        {"name": "HeartbeatResponse", "version": 0, "fields": {"ErrorCod": 5}},
        {"name": "HeartbeatResponse", "version": 0, "fields": {"ErrorCode": 40000}},
        {"name": "SaslHandshakeRequest", "version": 0, "fields": {"Mechanism": "x" * 40000}},
        b'{"name": "SaslHandshakeRequest", "version": 0, "fields": {"Mechanism": "\\ud800"}}',
        {"name": "HeartbeatResponse", "version": 0, "fields": {"ErrorCode": 5}, "hex": "stale"},
    ]
    found = show_lines("--encode", lines=lines)
    assert all("error" in answer and "hex" not in answer for answer in found[:-1])
    assert found[-1]["hex"] == "0005"


BATCH = build_batch([Record(7, 1_700_000_000_000, b"key", b"value" * 200, [("h", None)])], base_offset=7)


def test_decode_records_prints_the_batches_and_the_incomplete_rest(show_lines: ShowLines) -> None:
    [answer] = show_lines("--records", lines=[{"hex": (BATCH + BATCH[:20]).hex(), "name": "two"}])
    documents, size = batches_to_documents(BATCH)
    assert (answer["batches"], answer["rest"], size) == (documents, 20, len(BATCH))
    assert answer["batches"][0]["records"][0]["value"]["length"] == 1000
    [answer] = show_lines("--records", "--whole-values", lines=[{"hex": BATCH.hex()}])
    assert base64.b64decode(answer["batches"][0]["records"][0]["value"]) == b"value" * 200


def test_decode_records_finds_the_batches_in_a_message(show_lines: ShowLines) -> None:
    fields = {"TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": None}, {"Index": 1}]}]}
    [line] = show_lines("--encode", lines=[{"name": "ProduceRequest", "version": 9, "fields": fields}])
    line["fields"]["TopicData"][0]["PartitionData"][1]["Records"] = base64.b64encode(BATCH).decode()
    [line] = show_lines("--encode", lines=[line])
    [answer] = show_lines("--records", lines=[line])
    assert answer["batches"] == [
        {"place": "TopicData[0].PartitionData[1].Records", "batches": batches_to_documents(BATCH)[0]}
    ]


def test_broken_batches_are_answered_with_an_error_or_marked(show_lines: ShowLines) -> None:
    wrong_crc = bytearray(BATCH)
    wrong_crc[17] ^= 1
    old = bytearray(BATCH)
    old[16] = 1
    found = show_lines("--records", lines=[{"hex": bytes(data).hex()} for data in (wrong_crc, old, BATCH[:12])])
    assert found[0]["batches"][0]["crcOk"] is False
    assert "message format 1" in found[1]["error"]
    assert (found[2]["batches"], found[2]["rest"]) == ([], 12)


HELP_EXAMPLE = "000000160012000000000001000c6b61666b612d707974686f6e"


@pytest.mark.parametrize("where", ["argument", "stdin", "without length"])
def test_a_single_frame_is_printed_readably(where: str, run_odradek: Odradek, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HELP_EXAMPLE in EXAMPLES
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(HELP_EXAMPLE.encode() + b"\n")))
    inputs = {"argument": [HELP_EXAMPLE], "stdin": [], "without length": [HELP_EXAMPLE[8:]]}
    status, out, _ = run_odradek("show", "--hex", *inputs[where])
    assert status == 0
    shown = out.splitlines()
    assert shown[0].startswith("ApiVersions request, version 0, ")
    assert shown[1:] == [
        "header, version 1",
        "  RequestApiKey: 18",
        "  RequestApiVersion: 0",
        "  CorrelationId: 1",
        '  ClientId: "kafka-python"',
        "body",
    ]


def test_a_response_is_printed_readably_if_its_api_is_given(run_odradek: Odradek) -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, max_version=3)])
    data = frame(encode(ResponseHeader(correlation_id=4), 0), encode(response, 0)).hex()
    _, out, _ = run_odradek("show", "--hex", "--response", "ApiVersions:0", data)
    assert out.splitlines()[1:] == [
        "header, version 0",
        "  CorrelationId: 4",
        "body",
        "  ErrorCode: 0",
        "  ApiKeys: 1",
        "    - ApiKey: 18",
        "      MinVersion: 0",
        "      MaxVersion: 3",
    ]


def test_batches_are_printed_readably(run_odradek: Odradek) -> None:
    _, out, _ = run_odradek("show", "--hex", "--batches", (BATCH + b"\x00").hex())
    shown = out.splitlines()
    assert shown[0].startswith("batch: baseOffset 7, lastOffset 7, ")
    assert shown[1].startswith('  record: offset 7, timestamp 1700000000000, sequence -1, key "key", value "valueval')
    assert shown[1].endswith("... (1000 bytes), headers h=null")
    assert shown[2] == "1 bytes after the last whole batch"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["00"], "too few"),
        (["0000000a"], "RequestHeader v2: truncated"),
        (["7fff0000"], "API key 32767 is unknown"),
        (["000100630000000100ff"], "RequestHeader v2: truncated"),
        (["0001006300000001ffff00"], "FetchRequest has versions 0 to 18, not 99"),
        (["--records", "00"], "too few"),
        (["/no/such/file"], "neither a file nor hexadecimal"),
        (["--encode", "00"], "not a file"),
    ],
)
def test_a_frame_that_cannot_be_printed_ends_with_one_clear_line(
    arguments: list[str], complaint: str, run_odradek: Odradek
) -> None:
    status, _, err = run_odradek("show", "--hex", *arguments)
    assert status == 1
    assert complaint in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hex", "--response", "Nothing:1", "00"], "unknown API key 'Nothing'"),
        (["--hex", "--response", "Fetch", "00"], "'Fetch' is not API:VERSION"),
        (["--hex", "--json", "00"], "--json is not for --hex"),
        (["--encode", "orders.rec"], "--encode is for --hex"),
        ([], "the FILE of one recording"),
        (["one.rec", "two.rec"], "the FILE of one recording"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str], complaint: str, run_odradek: Odradek, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        run_odradek("show", *arguments)
    assert complaint in capsysbinary.readouterr().err.decode()


def test_files_are_read_one_after_the_other(tmp_path: Path, run_odradek: Odradek) -> None:
    paths = []
    for code in (1, 2):
        path = tmp_path / f"{code}.jsonl"
        path.write_text(json.dumps({"name": "HeartbeatResponse", "version": 0, "hex": f"000{code}"}) + "\n")
        paths.append(str(path))
    status, out, _ = run_odradek("show", "--hex", *paths)
    assert status == 0
    assert [json.loads(line)["fields"]["ErrorCode"] for line in out.splitlines()] == [1, 2]


def test_a_process_reads_stdin_and_a_closed_stdout_is_no_error() -> None:
    line = json.dumps({"name": "HeartbeatResponse", "version": 0, "hex": "0005"})
    command = f"for i in $(seq 2000); do echo '{line}'; done | {' '.join(SHOW_HEX)} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.stderr == b""
    assert json.loads(done.stdout)["fields"] == {"ErrorCode": 5}


def test_a_process_prints_text_that_its_locale_lacks() -> None:
    line = {"name": "SaslHandshakeRequest", "version": 0, "hex": "0002c3a9"}
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        SHOW_HEX, input=json.dumps(line).encode(), capture_output=True, timeout=PATIENCE_S, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["fields"] == {"Mechanism": "é"}
