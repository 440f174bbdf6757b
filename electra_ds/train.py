"""The training door: ``deepspeed electra_ds/train.py ...``, ``python -m electra_ds.train ...``."""

import sys
from pathlib import Path

if __name__ == "__main__" and not __package__:
    # Run as a script, Python puts this folder first on the path; its modules must not hide others.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != here)]

from electra_ds.training.main import main

if __name__ == "__main__":
    sys.exit(main())
