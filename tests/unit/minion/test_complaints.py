from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.minion.complaints import Complaints


def test_the_same_trouble_is_logged_once_a_minute(caplog):
    now = 0.0
    complaints = Complaints(clock=lambda: now)
    for jid, seconds in (("1", 0.0), ("2", 59.0), ("3", 1.0), ("4", 1.0)):
        now += seconds
        complaints.log("job %s runs without a record", jid, SafeUpdateError("the disk is full"))
    assert caplog.messages == [
        "safeupdate: job 1 runs without a record: the disk is full",
        "safeupdate: job 3 runs without a record: the disk is full",
    ]
