import pytest

from saltext_safeupdate.core.errors import CommandError, InputError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional.rebootmgr import RebootManager
from tests.support.fakes import FakeRunner

OLD, NEW = "rebootmgrctl (rebootmgr) 1.3\n", "rebootmgrctl (rebootmgr) 2.6\n"
NEWEST = "rebootmgrctl (rebootmgr) 3.3\n"
MACHINE = "0123456789abcdef" * 2


def manager(version, **answers):
    """*answers* maps the words, joined by ``__``, to what is printed."""
    script = {("rebootmgrctl", "--version"): (0, version, "")}
    for words, answer in answers.items():
        script[("rebootmgrctl", *words.split("__"))] = (
            answer if isinstance(answer, tuple) else (0, answer, "")
        )
    run = FakeRunner(script)
    return RebootManager(run), run


@pytest.mark.parametrize(
    ("version", "method", "args", "words"),
    [
        (OLD, "is_active", (), ("is_active", "--quiet")),
        (NEW, "is_active", (), ("is-active", "--quiet")),
        (OLD, "reboot", (None,), ("reboot",)),
        (OLD, "reboot", ("fast",), ("reboot", "fast")),
        (NEW, "reboot", ("now",), ("reboot", "now")),
        (OLD, "cancel", (), ("cancel",)),
        (OLD, "set_window", ("Thu 03:00", "1h30m"), ("set-window", "Thu 03:00", "1h30m")),
        (NEW, "set_window", ("", "1h"), ("set-window", "", "1h")),
        (OLD, "set_group", ("g_1",), ("set-group", "g_1")),
        (OLD, "set_max", (4, None), ("set-max", "4")),
        (OLD, "set_max", ("4", "g"), ("set-max", "--group", "g", "4")),
        (OLD, "lock", ("lock", None, None), ("lock",)),
        (OLD, "lock", ("unlock", MACHINE, "g"), ("unlock", "--group", "g", MACHINE)),
    ],
)
def test_command_lines(version, method, args, words):
    run = FakeRunner(
        {
            ("rebootmgrctl", "--version"): (0, version, ""),
            ("rebootmgrctl", *words): (0, "said\n", ""),
        }
    )
    getattr(RebootManager(run), method)(*args)
    assert run.calls[-1] == ("rebootmgrctl", *words)


class Daemon:
    """rebootmgr with a strategy; *deaf* takes none."""

    def __init__(self, version, strategy, *, deaf=False):
        self.version, self.strategy, self.deaf, self.asked = version, strategy, deaf, []
        self.off = False

    def take(self, strategy):
        """Since 3.3 it is off beside its strategy, until it is on again."""
        if strategy in ("on", "off") and self.version == NEWEST:
            self.off = strategy == "off"
        else:
            self.strategy = strategy

    def __call__(self, argv, **_):
        said = ""
        if argv[1] == "--version":
            said = self.version
        elif argv[1] == "status":
            assert (argv[2], self.version) == ("--full", NEWEST)
            off = " (reboots temporarily disabled)" if self.off else ""
            said = f"Status: Reboot not requested{off}\nStrategy: {self.strategy}\n"
        elif argv[1] == "get-strategy":
            said = f"Reboot strategy: {self.strategy}\n"
        else:
            assert argv[1] == "set-strategy"
            self.asked.append(argv[2])
            if not self.deaf:
                self.take(argv[2])
        return Result(argv=argv, returncode=0, stdout=said, stderr="")


@pytest.mark.parametrize(
    ("version", "given", "asked"),
    [
        (OLD, "etcd-lock", ["etcd-lock"]),
        (OLD, False, ["off"]),
        (NEW, "off", ["off"]),
        (NEWEST, False, ["off"]),
        (NEWEST, "off", ["off"]),
        (NEW, None, []),
        (OLD, "", []),
        (NEWEST, "best-effort", []),
    ],
)
def test_strategies(version, given, asked):
    daemon = Daemon(version, "best-effort")
    said = RebootManager(daemon).set_strategy(given)
    assert daemon.asked == asked
    assert ("nothing was changed" in said) is (not asked)


@pytest.mark.parametrize("given", [True, "on"])
def test_on_is_a_strategy_since_3(given):
    daemon = Daemon(NEWEST, "instantly")
    daemon.off = True
    assert RebootManager(daemon).get_strategy() == "off"
    RebootManager(daemon).set_strategy(given)
    assert (daemon.asked, daemon.off) == (["on"], False)
    assert RebootManager(daemon).get_strategy() == "instantly"
    assert "instantly already" in RebootManager(daemon).set_strategy(given)
    with pytest.raises(InputError, match="has to be one of"):
        RebootManager(Daemon(NEW, "off")).set_strategy(given)


def test_a_strategy_that_does_not_change_is_told():
    daemon = Daemon(NEWEST, "instantly", deaf=True)
    said = RebootManager(daemon).set_strategy("off")
    assert "still says that the strategy is instantly" in said


@pytest.mark.parametrize("given", ["off", False])
def test_it_is_off_beside_its_strategy_without_a_warning(given):
    daemon = Daemon(NEWEST, "best-effort")
    assert RebootManager(daemon).set_strategy(given) == "The strategy is off now."
    assert (daemon.asked, daemon.off, daemon.strategy) == (["off"], True, "best-effort")


def test_a_strategy_does_not_take_off_back():
    daemon = Daemon(NEWEST, "best-effort")
    daemon.off = True
    said = RebootManager(daemon).set_strategy("instantly")
    assert "still says that the strategy is off. Take that back with the strategy 'on'" in said


@pytest.mark.parametrize(
    ("given", "likely"),
    [(1200, "20:00"), (720, "12:00"), (3, "20:00"), (45000, "20:00"), (1.5, "")],
)
def test_a_time_that_yaml_has_made_a_number_of_is_refused_and_nothing_is_asked(given, likely):
    """1200 may be 20:00 of YAML, or 12:00 of a person."""
    found, run = manager(NEW)
    with pytest.raises(InputError, match=f"nothing was changed.*quotes twice.*\"'{likely}"):
        found.set_window(given, "1h")
    assert not [call for call in run.calls if "set-window" in call]


def test_soft_reboot():
    assert manager(NEW, **{"soft-reboot": "ok"})[0].reboot(None, soft=True) == "ok"
    with pytest.raises(InputError, match="no soft-reboot"):
        manager(OLD)[0].reboot(None, soft=True)


@pytest.mark.parametrize(
    ("version", "method", "args"),
    [
        (OLD, "reboot", ("later",)),
        (NEW, "reboot", ("fast",)),
        (NEW, "set_strategy", ("etcd-lock",)),
        (OLD, "set_strategy", ("--help",)),
        (OLD, "set_window", ("--help", "1h")),
        (OLD, "set_window", ("a\nb", "1h")),
        (OLD, "set_window", (5, "1h")),
        *[
            (OLD, "set_window", ("Thu", wrong))
            for wrong in ("", "h", "1", "1m1h", "-1h", "1h;x", None)
        ],
        (OLD, "set_group", ("--help",)),
        (OLD, "set_group", ("",)),
        (OLD, "set_max", (0, None)),
        (OLD, "set_max", (True, None)),
        (OLD, "set_max", ("x", None)),
        (OLD, "lock", ("lock", "--help", None)),
        (NEW, "set_group", ("g",)),
        (NEW, "get_group", ()),
        (NEW, "set_max", (4, None)),
        (NEW, "lock", ("lock", None, None)),
    ],
)
def test_wrong_input_runs_nothing(version, method, args):
    found, run = manager(version)
    with pytest.raises(InputError):
        getattr(found, method)(*args)
    assert set(run.calls) <= {("rebootmgrctl", "--version")}


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_status(code):
    found, _ = manager(OLD, **{"status__--quiet": (code, "", "")})
    assert found.status() == code


@pytest.mark.parametrize("answer", [(1, "", "Failed to connect"), (4, "", ""), (255, "", "")])
def test_a_status_that_is_an_error(answer):
    with pytest.raises(CommandError):
        manager(NEW, **{"status__--quiet": answer})[0].status()


def test_is_active_is_false_where_nothing_answers():
    assert manager(OLD, **{"is_active__--quiet": (1, "", "")})[0].is_active() is False


def test_answers():
    assert manager(OLD)[0].version() == "1.3"
    found, _ = manager(
        OLD,
        **{
            "get-strategy": "Reboot strategy: best-effort\n",
            "get-window": "Maintenance window is set to *-*-* 03:30:00, lasting 01h30m.\n",
            "get-group": "Etcd lock group is set to group1\n",
        },
    )
    assert found.get_strategy() == "best-effort"
    assert found.get_window() == {"time": "*-*-* 03:30:00", "duration": "01h30m"}
    assert found.get_group() == "group1"


def test_the_window_of_2_x_is_in_the_full_status():
    full = (
        "Status: Reboot not requested\nStrategy: maint-window\n"
        "Start of maintenance window: Thu *-*-* 03:00:00\nDuration of maintenance window: 1h\n"
    )
    found, _ = manager(NEW, **{"get-window": "", "status__--full": full})
    assert found.get_window() == {"time": "Thu *-*-* 03:00:00", "duration": "1h"}


@pytest.mark.parametrize(
    ("method", "words"), [("get_window", "get-window"), ("get_group", "get-group")]
)
def test_answers_that_cannot_be_read(method, words):
    with pytest.raises(SafeUpdateError, match="names no"):
        getattr(manager(OLD, **{words: "?"})[0], method)()


def test_no_version():
    with pytest.raises(SafeUpdateError, match="prints no version"):
        manager("usage\n")[0].reboot(None)
