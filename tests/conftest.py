"""For all tests: which form of the compiled modules runs, and what CI asks of a run.

Which tests run: tests/kinds.py, tests/rows.py.

ODRADEK_PURE=1        loads the .py of every compiled module although its .so is there
--of-compiled         collects only the folders that mirror a folder with compiled modules, or its top-level package
ODRADEK_NO_SKIP=1     makes a skipped test a failed one
ODRADEK_RERUNS=FILE   adds to FILE the names of the tests that got a second attempt (--reruns)
"""

import logging
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import structlog

ROOT = Path(__file__).resolve().parent.parent
REBUILD = ".venv/bin/python setup.py build_ext --inplace"


class Sources(MetaPathFinder):
    """Finds the compiled modules' sources, before anything else finds their extensions."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def _module(file: Path) -> ModuleType:
    spec = spec_from_file_location(f"odradek_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETUP = _module(ROOT / "setup.py")
FILES = {path.removesuffix(".py").replace("/", "."): ROOT / path for path in SETUP.COMPILED}
PURE = os.environ.get("ODRADEK_PURE") == "1"
pytest_plugins = [
    f"tests.{name}" for name in ("collector", "shown_secrets", "programs", "kinds", "rows", "soak", "hangs")
]
if PURE:  # at once: the conftest of a package imports the package
    sys.meta_path.insert(0, Sources(FILES))


_PATHS = [Path(path.removeprefix("odradek/")) for path in SETUP.COMPILED]
MIRRORS = {ROOT / "tests" / folder for path in _PATHS for folder in (path.parent, path.parts[0])}


@pytest.fixture(autouse=True)
def _structlog_as_before() -> Iterator[None]:
    """`capture_logs` leaves structlog configured: brokers of later tests would log everything, to stdout."""
    was_configured = structlog.is_configured()
    yield
    if not was_configured:
        structlog.reset_defaults()


@pytest.fixture
def logging_as_when_served(_structlog_as_before: None) -> None:
    """The many lines of level debug are not formatted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--of-compiled", action="store_true", help="only the tests beside compiled modules")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_elsewhere = collection_path.is_file() and collection_path.parent not in MIRRORS
    return True if config.getoption("--of-compiled") and is_elsewhere else None


def pytest_configure(config: pytest.Config) -> None:
    if PURE:
        loaded = [name for name in FILES if name in sys.modules and sys.modules[name].__file__ != str(FILES[name])]
        if loaded:
            raise pytest.UsageError(
                f"ODRADEK_PURE=1 comes too late for what plugins have imported: {', '.join(loaded)}"
            )
        return
    stale = stale_builds(list(FILES.values()), SETUP.built_files())
    if stale:
        raise pytest.UsageError(f"compiled modules are older than their sources ({', '.join(stale)}); run: {REBUILD}")


def stale_builds(sources: list[Path], built: list[Path]) -> list[str]:
    """Names of the sources that have changed since the oldest .so was built; none where nothing is built."""
    if not built:
        return []
    oldest = min(file.stat().st_mtime for file in built)
    return [source.name for source in sources if source.stat().st_mtime > oldest]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("ODRADEK_NO_SKIP") == "1" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which this run does not allow: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if hasattr(terminalreporter.config, "workerinput"):
        return  # the process that started the workers of pytest-xdist has all reports
    reports = terminalreporter.getreports("rerun")
    if reports and (path := os.environ.get("ODRADEK_RERUNS")):
        with open(path, "a") as file:
            file.writelines(f"{report.nodeid}\n" for report in reports)
