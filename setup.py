"""Compiles the modules of compiled_modules.txt with mypyc, where a C compiler and Python's headers are found.

Each of them is typed pure Python that runs as it stands; compiled, it is loaded from the .so beside it. It is all or
nothing: if one of them does not compile, none stays behind. `python -m odradek.broker.build_info` says which form runs.

ODRADEK_BUILD=compiled    a build that cannot compile fails, instead of going on without, and the compiler optimizes all
                          it can, also across files: for wheels and images (docs/decisions/what-is-compiled.md)
ODRADEK_BUILD=pure        nothing is compiled, and the wheel fits every platform

An editable install builds in place. To build again after a change:

    .venv/bin/pip install --no-deps -e .            as set-up does it
    .venv/bin/python setup.py build_ext --inplace   the same in fewer seconds
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).resolve().parent
COMPILED = tuple(
    line for line in (ROOT / "compiled_modules.txt").read_text().splitlines() if line and not line.startswith("#")
)
# All of them are one library; the .so beside a module only finds its part of it. Without the dot mypyc would make a
# top-level module of it.
LIBRARY = "odradek.native"
NOTE = "odradek/broker/build_note.json"
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
FORM = os.environ.get("ODRADEK_BUILD", "where possible")


def built_files(root: Path = ROOT) -> list[Path]:
    """The .so files of COMPILED, the library first, as far as they exist under `root`."""
    patterns = [f"{LIBRARY.replace('.', '/')}__mypyc.*.so", *(path.removesuffix(".py") + ".*.so" for path in COMPILED)]
    return [file for pattern in patterns for file in sorted(root.glob(pattern))]


def _extensions() -> tuple[list, str]:
    """The extension modules to build, or none and why."""
    if not BUILDING.intersection(sys.argv[1:]):
        return [], ""
    if FORM == "pure":
        return [], "this is the build for every platform"
    try:
        from mypyc.build import mypycify

        # The build environment lacks the packages that these modules import, so missing imports are ignored. The
        # configuration of mypy is not read: `make check` applies its strict rules.
        options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        level, debug = ("3", "1") if FORM == "compiled" else ("1", "0")
        extensions = mypycify(
            [*options, *COMPILED], opt_level=level, debug_level=debug, group_name=LIBRARY, multi_file=True
        )
    except ImportError:
        return [], "mypy is not installed where the build runs"
    except SystemExit as error:
        return [], f"mypyc does not take the sources (exit status {error.code})"
    for extension in extensions:
        extension.extra_compile_args = list(extension.extra_compile_args)  # mypyc gives all of them the same list
        # The C files name the group's header without the folder that the dot makes of the group's name.
        extension.include_dirs.append(str(Path("build", *LIBRARY.split(".")[:-1])))
        extension.extra_compile_args.append("-fvisibility=hidden")
    return extensions, ""


def _optimize_across_files(extensions: list, compiler: str) -> None:
    """Where the compiler is GCC: a call from one C file to another becomes as direct as one within a file."""
    if FORM != "compiled":
        return
    asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    if "Free Software Foundation" in asked.stdout:
        for extension in extensions:
            extension.extra_compile_args.append("-flto=auto")
            extension.extra_link_args += ["-flto=auto", "-O3"]


def write_note(reason: str, root: Path) -> None:
    """Writes down which modules a build should have compiled, and why it did not."""
    note = root / NOTE
    note.parent.mkdir(parents=True, exist_ok=True)
    modules = [path.removesuffix(".py").replace("/", ".") for path in COMPILED]
    note.write_text(json.dumps({"modules": modules, "reason": reason}) + "\n")


def compiling(reason: str) -> dict:
    """The arguments of setup() for a build that compiles, or goes on without for `reason`."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class BuildOrDoWithout(build_ext):
        """Builds all extensions or none, and writes down which."""

        def run(self) -> None:
            why = reason
            # Asked before: a run that fails leaves `inplace` changed.
            root = ROOT if self.inplace or self.editable_mode else Path(self.build_lib)
            try:
                super().run()
            except Exception as error:  # no compiler, no headers: as many exceptions as there are platforms
                if FORM == "compiled":
                    raise
                why = shorten(f"{error}" or type(error).__name__, 120, placeholder=" ...")
            if why:
                self._do_without(why, root)
            elif root is ROOT:
                for file in built_files():  # also those that had not changed: they are as new as their sources
                    file.touch()
            write_note(why, root)

        def build_extensions(self) -> None:
            """Compiles and links as many files at once as there are processors."""
            compile_all, self.parallel = self.compiler.compile, self.parallel or os.cpu_count()
            print(f"odradek: compiling {len(COMPILED)} modules", file=sys.stderr, flush=True)
            _optimize_across_files(self.extensions, self.compiler.compiler[0])
            with ThreadPoolExecutor(self.parallel) as pool:

                def side_by_side(sources: list[str], **options: object) -> list[str]:
                    compiled = pool.map(lambda source: compile_all([source], **options), sources)
                    return list(chain.from_iterable(compiled))

                self.compiler.compile = side_by_side
                super().build_extensions()

        def _do_without(self, why: str, root: Path) -> None:
            print(f"odradek: nothing is compiled: {why}", file=sys.stderr)
            for file in {*built_files(root), *built_files(Path(self.build_lib))}:
                file.unlink()
            self.extensions = []
            self.distribution.ext_modules = []

    class WithNote(Distribution):
        """Runs build_ext even where there is nothing to build, so that the note says why."""

        def has_ext_modules(self) -> bool:
            return bool(BUILDING.intersection(sys.argv[1:]))

    return {"distclass": WithNote, "cmdclass": {"build_ext": BuildOrDoWithout}}


def pure(reason: str) -> dict:
    """The arguments of setup() for a build for every platform."""
    from setuptools.command.build_py import build_py

    class BuildPure(build_py):
        def run(self) -> None:
            super().run()
            write_note(reason, Path(self.build_lib))

    return {"cmdclass": {"build_py": BuildPure}}


def main() -> None:
    from setuptools import setup

    extensions, reason = _extensions()
    if reason and FORM == "compiled":
        sys.exit(f"odradek: nothing is compiled: {reason}")
    setup(ext_modules=extensions, **(pure(reason) if FORM == "pure" else compiling(reason)))


if __name__ == "__main__":
    main()
