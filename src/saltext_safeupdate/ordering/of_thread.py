"""The place of the state run of a thread, for code that also runs without one."""

from __future__ import annotations

import threading

# Its attribute ``run`` is the Run of :mod:`.runs`; without a run it is missing, or None.
local = threading.local()
