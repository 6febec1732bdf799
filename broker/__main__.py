"""`python -m odradek.broker` is `odradek serve`."""

import sys

from odradek.cli.serve import main

if __name__ == "__main__":
    sys.exit(main())
