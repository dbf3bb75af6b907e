"""Where the state run of a thread is, for what asks for it also where there is none."""

from __future__ import annotations

import threading

# Its attribute ``run`` is the Run of :mod:`.runs`; without a run there is none, or it is None.
local = threading.local()
