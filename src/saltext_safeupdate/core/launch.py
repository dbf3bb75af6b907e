"""
Start the supervisor from this file's own package, whatever ``sys.path`` says.

Run as a script with ``-I``: nothing of the caller's environment counts.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from saltext_safeupdate.core.program import main

    sys.exit(main(sys.argv[1:]))
