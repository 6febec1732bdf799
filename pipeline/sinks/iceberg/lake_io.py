"""pyiceberg's files in a lake: the same stores, options and retries as for all other files of the pipeline.

Only metadata passes through this module, and is small: each file is read and written as a whole.
"""

from __future__ import annotations

import io
from types import TracebackType

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from odradek.pipeline.state.location import Location

LOCAL = "file://"
STORE_OPTION = "odradek.store."
"""The prefix of the options of [store] among a catalog's properties, which no catalog stores."""


def uri_of(place: Location) -> str:
    """Returns the location as tables name it."""
    return f"{LOCAL}{place.url}" if place.is_local else place.url


def file_at(uri: str, properties: dict[str, str]) -> tuple[Location, str]:
    """Returns the directory of a file that a table names, and its name there."""
    options = {
        name.removeprefix(STORE_OPTION): value for name, value in properties.items() if name.startswith(STORE_OPTION)
    }
    directory, _, name = uri.removeprefix("file:").rpartition("/")
    if "://" not in directory:
        directory = f"/{directory.lstrip('/')}"
    return Location(directory, options), name


class LakeIO(FileIO):
    """Files by their URIs."""

    def new_input(self, location: str) -> InputFile:
        return _Input(location, *file_at(location, self.properties))

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, *file_at(location, self.properties))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place, name = file_at(location if isinstance(location, str) else location.location, self.properties)
        place.remove(name)


class _Input(InputFile):
    def __init__(self, location: str, place: Location, name: str) -> None:
        super().__init__(location)
        self._place = place
        self._name = name

    def __len__(self) -> int:
        return len(self._content())

    def exists(self) -> bool:
        return self._place.read(self._name) is not None

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content())

    def _content(self) -> bytes:
        content = self._place.read(self._name)
        if content is None:
            raise FileNotFoundError(f"{self.location} not found")
        return content


class _Output(OutputFile):
    def __init__(self, location: str, place: Location, name: str) -> None:
        super().__init__(location)
        self._place = place
        self._name = name
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._place, self._name)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self, overwrite)

    def put(self, content: bytes, overwrite: bool) -> None:
        """Writes the file. Raises FileExistsError."""
        self._size = len(content)
        if overwrite:
            self._place.replace(self._name, content)
        elif not self._place.create(self._name, content):
            raise FileExistsError(f"{self.location} exists")


class _Stream(io.BytesIO):
    """Writes the file when it is closed, unless the block that wrote it has failed."""

    def __init__(self, output: _Output, overwrite: bool) -> None:
        super().__init__()
        self._output = output
        self._overwrite = overwrite

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._output.put(content, self._overwrite)
