"""
Install in a snapshot, whatever ``sys.path`` says. Run as a script with ``-I``.

This file is part of a copy of the package that is visible inside the transaction.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(__file__).rsplit(os.sep, 5)[0])
    from saltext_safeupdate.core.transactional.install import main

    sys.exit(main(sys.argv[1:]))
