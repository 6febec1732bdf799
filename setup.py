"""Compiles the hot modules with mypyc where a C compiler and Python's headers are found, and does without elsewhere.

Every module in COMPILED is typed pure Python that runs as it stands; compiled, it is loaded from the .so beside it. It
is all or nothing: when one of them does not compile, none stays behind. `python -m broker.build_info` says which.

An editable install builds in place. To build again after a change:

    .venv/bin/pip install --no-deps -e .            as set-up does it
    .venv/bin/python setup.py build_ext --inplace   the same in fewer seconds
"""

import json
import sys
from pathlib import Path
from textwrap import shorten

COMPILED = (
    "protocol/record_walk.py",
    "protocol/batch_header.py",
    "protocol/record_rules.py",
    "protocol/leader_assignment.py",
    "protocol/plain_batch.py",
    "protocol/record_validation.py",
    "storage/cleaner_walk.py",
    "storage/segment.py",
    "storage/log_config.py",
    "storage/log_append.py",
    "storage/log.py",
    "storage/leader_epochs.py",
    "storage/producer_state.py",
    "storage/producer_state_entry.py",
    "broker/metrics.py",
    "broker/replica/append_result.py",
    "broker/replica/hosted_partitions.py",
    "broker/replica/flusher.py",
    "broker/replica/partition.py",
    "broker/replica/wakeups.py",
    "broker/replica/appends.py",
    "broker/replica/markers.py",
    "broker/replica/verification.py",
    "broker/coordinator/shard.py",
    "broker/coordinator/runtime.py",
    "broker/coordinator/group/offset_records.py",
    "broker/coordinator/group/offset_fencing.py",
    "broker/coordinator/group/offsets.py",
    "broker/coordinator/group/offset_commits.py",
    "broker/coordinator/transaction/transaction.py",
    "broker/coordinator/transaction/records.py",
    "broker/coordinator/transaction/rules.py",
    "broker/coordinator/transaction/shard.py",
    "broker/coordinator/transaction/markers.py",
    "broker/coordinator/transaction/local_markers.py",
    "broker/coordinator/transaction/changes.py",
    "broker/coordinator/transaction/coordinator.py",
    "broker/handlers/parked_answer.py",
    "broker/handlers/produce.py",
    "broker/handlers/offsets.py",
    "broker/handlers/dispatcher.py",
    "broker/network/large_frame.py",
    "broker/network/outbox.py",
    "broker/network/connection.py",
    "timer/task.py",
    "timer/task_list.py",
    "timer/bucket_queue.py",
    "timer/timing_wheel.py",
    "timer/system_timer.py",
    "purgatory/delayed_operation.py",
    "purgatory/completion_queue.py",
    "purgatory/watchers.py",
    "purgatory/purgatory.py",
    "purgatory/expirations.py",
    "purgatory/delayed_acknowledgement.py",
    "purgatory/delayed_produce.py",
    "purgatory/delayed_fetch.py",
    "purgatory/delayed_delete_records.py",
    "pipeline/segments/record_starts.py",
)

# All of them are one library; the .so beside a module only finds its part of it.
LIBRARY = "odradek"
NOTE = "broker/build_note.json"
ROOT = Path(__file__).resolve().parent
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def built_files(root: Path = ROOT) -> list[Path]:
    """The .so files of COMPILED, the library first, as far as they exist under `root`."""
    patterns = [f"{LIBRARY}__mypyc.*.so", *(path.removesuffix(".py") + ".*.so" for path in COMPILED)]
    return [file for pattern in patterns for file in sorted(root.glob(pattern))]


def _extensions() -> tuple[list, str]:
    """The extension modules to build, or none and why."""
    if not BUILDING.intersection(sys.argv[1:]):
        return [], ""
    try:
        from mypyc.build import mypycify

        # A build environment has none of the packages that these modules import. How strict to be is for `make check`.
        options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        return mypycify([*options, *COMPILED], group_name=LIBRARY), ""
    except ImportError:
        return [], "mypy is not installed where the build runs"
    except SystemExit as error:
        return [], f"mypyc does not take the sources (exit status {error.code})"


def main() -> None:
    from setuptools import Distribution, setup
    from setuptools.command.build_ext import build_ext

    extensions, reason = _extensions()

    class BuildOrDoWithout(build_ext):
        """Builds all extensions or none, and writes down which."""

        def run(self) -> None:
            why = reason
            # Asked before: a run that fails leaves `inplace` changed.
            root = ROOT if self.inplace or self.editable_mode else Path(self.build_lib)
            try:
                super().run()
            except Exception as error:  # no compiler, no headers: as many exceptions as there are platforms
                why = shorten(f"{error}" or type(error).__name__, 120, placeholder=" ...")
            if why:
                self._do_without(why, root)
            elif root is ROOT:
                for file in built_files():  # also those that had not changed: they are as new as their sources
                    file.touch()
            self._write_note(why, root)

        def _do_without(self, why: str, root: Path) -> None:
            print(f"odradek: nothing is compiled: {why}", file=sys.stderr)
            for file in {*built_files(root), *built_files(Path(self.build_lib))}:
                file.unlink()
            self.extensions = []
            self.distribution.ext_modules = []

        def _write_note(self, why: str, root: Path) -> None:
            note = root / NOTE
            note.parent.mkdir(parents=True, exist_ok=True)
            modules = [path.removesuffix(".py").replace("/", ".") for path in COMPILED]
            note.write_text(json.dumps({"modules": modules, "reason": why}) + "\n")

    class WithNote(Distribution):
        """Runs build_ext even where there is nothing to build, so that the note tells why."""

        def has_ext_modules(self) -> bool:
            return bool(BUILDING.intersection(sys.argv[1:]))

    setup(distclass=WithNote, ext_modules=extensions, cmdclass={"build_ext": BuildOrDoWithout})


if __name__ == "__main__":
    main()
