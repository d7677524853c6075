"""`python -m tnfdt` is the command `tnfdt`."""

import sys

from tnfdt.cli import main

sys.exit(main())
