"""Which form of the compiled modules runs, how it is reported, and the files that a build leaves behind."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from odradek.broker.build_info import BuildInfo, build_info

ROOT = Path(__file__).parents[2]
PURE = os.environ.get("ODRADEK_PURE") == "1"
EXPECT_COMPILED = os.environ.get("ODRADEK_EXPECT_COMPILED") == "1"


def compiled_table(root: Path = ROOT) -> list[str]:
    probe = "import json, setup; print(json.dumps(setup.COMPILED))"
    output = subprocess.run([sys.executable, "-c", probe], cwd=root, capture_output=True, text=True, check=True).stdout
    return [path.removesuffix(".py").replace("/", ".") for path in json.loads(output)]


def test_every_compiled_module_is_loaded_in_the_form_that_this_run_expects() -> None:
    """All modules have one form: a mixture comes from a build that stopped halfway."""
    forms = {Path(import_module(name).__file__ or "").suffix for name in compiled_table()}
    if PURE:
        assert forms == {".py"}
    elif EXPECT_COMPILED:
        assert forms == {".so"}
    else:
        assert forms in ({".py"}, {".so"})


def test_no_compiled_module_has_a_coroutine() -> None:
    """mypyc passes exceptions to an awaited object by a call that is deprecated since Python 3.12."""
    sources = [ROOT / (name.replace(".", "/") + ".py") for name in compiled_table()]
    nodes = [(source.name, node) for source in sources for node in ast.walk(ast.parse(source.read_text()))]
    assert [name for name, node in nodes if isinstance(node, ast.AsyncFunctionDef)] == []


def test_the_build_info_names_the_loaded_form() -> None:
    info = build_info()
    if not info.compiled and not info.interpreted:
        assert "no build" in str(info)
        return
    assert sorted(info.compiled + info.interpreted) == sorted(compiled_table())
    for name in info.compiled:
        spec = find_spec(name)
        assert spec is not None
        assert (spec.origin or "").endswith(".so")


def test_the_log_line_states_which_modules_are_compiled_and_why_others_are_not() -> None:
    assert str(BuildInfo(["a", "b"], [], "")) == "compiled: a, b"
    assert str(BuildInfo(["a"], ["b"], "")) == "compiled: a; plain Python: b: no build has taken place here"
    assert str(BuildInfo([], ["b"], "no compiler")).endswith("plain Python, correct and slower: no compiler")


def test_modules_without_an_extension_are_interpreted(tmp_path: Path) -> None:
    note = tmp_path / "note.json"
    note.write_text(json.dumps({"modules": ["json.decoder"], "reason": "no compiler"}))
    info = build_info(note)
    assert (info.compiled, info.interpreted, info.reason) == ([], ["json.decoder"], "no compiler")
    assert not info.is_compiled


def test_without_a_build_note_the_build_info_reports_no_build(tmp_path: Path) -> None:
    assert str(build_info(tmp_path / "missing.json")).endswith("no build has taken place here")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources of one small module instead of the table: its build takes a second."""
    tree = tmp_path / "tree"
    (tree / "odradek" / "protocol").mkdir(parents=True)
    (tree / "odradek" / "protocol" / "record_walk.py").write_text("def one() -> int:\n    return 1\n")
    shutil.copy(ROOT / "setup.py", tree)
    (tree / "compiled_modules.txt").write_text("# the table\nodradek/protocol/record_walk.py\n")
    return tree


def built(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize(("form", "level", "flto"), [("where possible", "-O1", False), ("compiled", "-O3", True)])
def test_only_a_build_for_others_is_optimized_across_files(tree: Path, form: str, level: str, flto: bool) -> None:
    """Nobody should wait minutes for 3 % of the broker's time."""
    compiler = tree / "gcc"
    asked = tree / "asked"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {asked}\necho Free Software Foundation\ntest "$1" = --version\n')
    compiler.chmod(0o755)
    build = built(tree, CC=str(compiler), ODRADEK_BUILD=form)
    assert (build.returncode == 0) == (form != "compiled")
    assert "odradek: compiling 1 modules" in build.stderr
    options = next(line for line in asked.read_text().splitlines() if " -c " in line).split()
    assert [option for option in options if option.startswith("-O")][-1] == level
    assert options.count("-flto=auto") == flto


@pytest.mark.long
@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler"])
def test_a_build_without_a_compiler_leaves_plain_python_and_records_the_reason(tree: Path, compiler: str) -> None:
    half_built = tree / "odradek" / "native__mypyc.cpython-311-x86_64-linux-gnu.so"
    half_built.write_bytes(b"from an earlier build")

    build = built(tree, CC=compiler)

    assert build.returncode == 0, build.stderr
    assert "nothing is compiled" in build.stderr
    assert not list(tree.rglob("*.so"))
    note = json.loads((tree / "odradek" / "broker" / "build_note.json").read_text())
    assert note["modules"] == ["odradek.protocol.record_walk"]
    assert compiler in note["reason"]


def test_a_source_newer_than_its_build_is_stale(tmp_path: Path) -> None:
    old, new, built = tmp_path / "old.py", tmp_path / "new.py", tmp_path / "x.so"
    for file, time in ((old, 100), (built, 200), (new, 300)):
        file.touch()
        os.utime(file, (time, time))
    conftest = import_conftest()
    assert conftest.stale_builds([old, new], [built]) == ["new.py"]
    assert conftest.stale_builds([old], [built]) == []
    assert conftest.stale_builds([old, new], []) == []


def import_conftest() -> ModuleType:
    spec = spec_from_file_location("root_conftest", ROOT / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
