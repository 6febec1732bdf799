"""Optional dependencies of commands: the extras of the distribution, in pyproject.toml."""

from __future__ import annotations

from importlib.util import find_spec

from odradek.cli.errors import CommandError

MODULES = {
    "cli": ("kafka.net", "snappy"),
    "security": ("cryptography",),
    "spark": ("pyspark", "deltalake", "pyarrow", "matplotlib", "kafka.net", "snappy"),
}
"""One module of each package of an extra. `kafka.net` exists since kafka-python 3."""


def require_extra(extra: str) -> None:
    """Raises CommandError with the pip command to run, unless the packages of an extra are installed."""
    missing = [module for module in MODULES[extra] if not _is_installed(module)]
    if missing:
        raise CommandError(f"{', '.join(missing)}: not installed; run: pip install 'odradek[{extra}]'")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the package is missing, or does not load with this Python
        return False
