"""`python -m probe`: the same commands as the one-file build."""

import sys

from probe.cli import main

sys.exit(main())
