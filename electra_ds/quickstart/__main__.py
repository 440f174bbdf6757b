"""``python -m electra_ds.quickstart``."""

import sys

from electra_ds.quickstart.main import main

if __name__ == "__main__":
    sys.exit(main())
