"""Registered Protobuf schemas to descriptor sets.

A registry has the text of a .proto file, or a FileDescriptorProto in Base64, as Python's clients register it. Google's
compiler, which grpcio-tools has, makes descriptors of texts.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from odradek.pipeline.errors import PipelineError

MAIN = "odradek_registered.proto"
"""The name under which the schema is compiled that the others belong to."""
COMPILER_TIMEOUT_S = 60


@lru_cache(maxsize=256)
def compiled(text: str, references: tuple[tuple[str, str], ...]) -> tuple[bytes, str]:
    """Returns a serialized FileDescriptorSet of a schema and of the files that it imports (by the name of the import),
    and the name of the schema's file in it. Raises PipelineError."""
    files = {name: _decoded(content) for name, content in references}
    main = _decoded(text)
    texts = {name: content for (name, content) in references if files[name] is None}
    if main is None:
        texts[MAIN] = text
    found = FileDescriptorSet()
    for name, file in files.items():
        if file is not None:
            file.name = name
            found.file.append(file)
    if texts:
        found.file.extend(FileDescriptorSet.FromString(_protoc(texts, found)).file)
    if main is not None:
        found.file.append(main)
    return found.SerializeToString(), MAIN if main is None else main.name


def _decoded(text: str) -> FileDescriptorProto | None:
    """Returns a schema in Base64. None if it is the text of a file."""
    try:
        file: FileDescriptorProto = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (Error, ValueError, DecodeError):
        return None
    return file


def _protoc(texts: Mapping[str, str], others: FileDescriptorSet) -> bytes:
    """Compiles files that may import each other, and the `others`. Raises PipelineError."""
    with tempfile.TemporaryDirectory(prefix="odradek-proto-") as directory:
        for name, text in texts.items():
            _write(Path(directory), name, text)
        there, made = Path(directory, "odradek_others.desc"), Path(directory, "odradek_made.desc")
        there.write_bytes(others.SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{directory}", f"--descriptor_set_out={made}"]
        command += [f"--descriptor_set_in={there}"] if others.file else ["--include_imports"]
        try:
            done = subprocess.run(
                [*command, *texts],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMPILER_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise PipelineError("the Protobuf schema takes too long to compile") from error
        if done.returncode != 0 or not made.exists():
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            if "No module named" in lines[-1]:
                raise PipelineError("grpcio-tools is not installed", "pip install 'odradek[spark]'")
            line = lines[0].removeprefix(f"{directory}/")
            raise PipelineError(f"the Protobuf schema does not compile: {line}")
        return made.read_bytes()


def _write(directory: Path, name: str, text: str) -> None:
    """Writes a file below the directory, whatever a registry calls it. Raises PipelineError."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.name.endswith(".proto"):
        raise PipelineError(f"the Protobuf schema imports {name!r}, which is not the name of a .proto file")
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_text(text)
