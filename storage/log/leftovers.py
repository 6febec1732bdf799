"""Cleaning up after an interrupted broker: files marked for deletion, and unfinished replacements of segments.

A cleaner (or the splitting of a segment) writes `.cleaned` files, renames them to `.swap`, and these to their final
names after the old files have been removed. So a `.cleaned` file means that the old segments are complete. A `.swap`
file without `.cleaned` files at lower or equal offsets means that the new segments are complete; it replaces the old
ones from its base offset to its end. (Kafka's LogLoader.)
"""

import structlog

from odradek.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    offset_of_file,
)
from odradek.storage.files import Files
from odradek.storage.segment.batch_scan import scan_batches

_log = structlog.get_logger(__name__)


def clear_leftovers(files: Files, directory: str) -> None:
    """Leaves only files with their final names. Raises OSError."""
    names = files.list_directory(directory)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    lowest_cleaned = min((_offset(name) for name in cleaned), default=None)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    undone = [name for name in swaps if lowest_cleaned is not None and _offset(name) >= lowest_cleaned]
    for name in [*(name for name in names if name.endswith((DELETED_SUFFIX, ".tmp"))), *cleaned, *undone]:
        _log.info("leftover removed", directory=directory, file=name)
        files.remove(f"{directory}/{name}")
    _finish_swaps(files, directory, [name for name in swaps if name not in undone])


def _finish_swaps(files: Files, directory: str, swaps: list[str]) -> None:
    if not swaps:
        return
    first, end = None, 0
    for name in swaps:
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            base = _offset(name)
            first = base if first is None else min(first, base)
            end = max(end, base + 1, _next_offset(files, f"{directory}/{name}", base))
    if first is not None:
        for name in files.list_directory(directory):
            offset = offset_of_file(name)
            if name.endswith(SEGMENT_SUFFIXES) and offset is not None and first <= offset < end:
                _log.info("replaced segment removed", directory=directory, file=name)
                files.remove(f"{directory}/{name}")
    for name in swaps:
        _log.info("replacement finished", directory=directory, file=name)
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    files.sync_directory(directory)


def _next_offset(files: Files, path: str, base: int) -> int:
    file = files.open(path)
    try:
        end = base
        for batch in scan_batches(file, 0, file.size()):
            end = batch.last_offset + 1
        return end
    finally:
        file.close()


def _offset(name: str) -> int:
    offset = offset_of_file(name)
    return -1 if offset is None else offset
