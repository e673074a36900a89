"""`python -m gemel` is the command `gemel`."""

import sys

from gemel.cli import main

sys.exit(main())
