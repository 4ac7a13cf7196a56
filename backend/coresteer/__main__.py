import sys

from coresteer.cli.main import main

sys.exit(main())
