"""`python -m broker` is `odradek serve`."""

import sys

from broker.serve import main

if __name__ == "__main__":
    sys.exit(main())
