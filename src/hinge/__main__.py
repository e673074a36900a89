"""`python -m hinge` is the command `hinge`."""

import sys

from hinge.cli import main

sys.exit(main())
