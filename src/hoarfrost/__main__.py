"""``python -m hoarfrost``."""

import sys

from hoarfrost.cli import main

sys.exit(main())
