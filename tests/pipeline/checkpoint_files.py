"""Checkpoints made by hand."""

from __future__ import annotations

from pathlib import Path

from odradek.pipeline.checkpoints import Checkpoint

PLAN = 'v1\n{"batchWatermarkMs":0}\n{"orders":{"0":%d,"1":7}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def checkpoint(path: Path, plans: int, commits: int) -> Checkpoint:
    """As Spark writes one, but for state."""
    files = {f"offsets/{number}": PLAN % (10 * (number + 1)) for number in range(plans)}
    files |= {f"commits/{number}": COMMIT for number in range(commits)}
    files |= {"metadata": '{"id":"5"}', "sources/0/0": '\0v1\n{"orders":{"0":3}}'}
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
        (path / name).with_name(f".{Path(name).name}.crc").write_text("crc")
    return Checkpoint(path)


def cut(file: Path, part: float) -> None:
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * part)])
