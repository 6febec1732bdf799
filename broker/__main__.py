"""`python -m odradek.broker` is `odradek serve`."""

import sys

from odradek.broker.serve import main

if __name__ == "__main__":
    sys.exit(main())
