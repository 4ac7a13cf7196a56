import sys

from coresteer.cli import main

sys.exit(main())
