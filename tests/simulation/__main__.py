"""See run.py. ODRADEK_PURE=1 takes the sources of compiled modules, as it does in the tests."""

import gc
import sys

import tests.conftest  # noqa: F401 - before anything imports a compiled module
from tests.simulation.run import main

if __name__ == "__main__":
    gc.disable()  # each run collects what the one before has left
    sys.exit(main())
