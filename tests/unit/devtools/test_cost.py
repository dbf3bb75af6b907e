from devtools import cost

LOG = """
    2.0 s of a processor  tests/unit/test_it.py::test_it
processor time: 12 s
===== 1 passed in 3.00s =====
"""


def test_a_log_tells_what_its_tests_took():
    assert cost.total(LOG) == 12
    assert cost.total("it ended before it could tell") == 0
