import pytest

from saltext_safeupdate.core.errors import CommandError, InputError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional import reboot
from saltext_safeupdate.core.transactional.outcome import Limits
from tests.support.fakes import FakeRunner

ACTIVE = ("rebootmgrctl", "is-active", "--quiet")
STATUS = ("rebootmgrctl", "status", "--quiet")
FULL = ("rebootmgrctl", "status", "--full")
STRATEGY = ("rebootmgrctl", "get-strategy")
MANAGER = {
    ("rebootmgrctl", "--version"): (0, "rebootmgrctl (rebootmgr) 3.3\n", ""),
    FULL: (0, "Status: Reboot not requested\nStrategy: best-effort\n", ""),
    STRATEGY: (0, "Reboot strategy: best-effort\n", ""),
}
RUNNING = ("systemctl", "is-system-running")
JOBS = ("systemctl", "list-jobs", "--no-legend")
MISSING = CommandError(["rebootmgrctl"], "cannot be started: No such file or directory")
IDLE = {RUNNING: (0, "running\n", ""), JOBS: (0, "1 web.service start\n", "")}
JOB = "1234 reboot.target                  start waiting\n1235 web.service stop running\n"


@pytest.fixture
def config(tmp_path):
    return tmp_path / "transactional-update.conf"


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("REBOOT_METHOD=systemd\n", "systemd"),
        ('  REBOOT_METHOD = "kured"  \n', "kured"),
        ("#REBOOT_METHOD=kured\n", "systemd"),
        ("REBOOT_METHOD=\n", "systemd"),
        ("REBOOT_METHOD=auto\nREBOOT_METHOD=none\n", "none"),
    ],
)
def test_method(config, text, method):
    config.write_text(text)
    assert reboot.method(FakeRunner({ACTIVE: MISSING}), [config]) == method


def test_auto_is_rebootmgr_where_it_runs(config):
    assert reboot.method(FakeRunner({ACTIVE: (0, "", "")}), [config]) == "rebootmgr"
    assert reboot.method(FakeRunner({ACTIVE: (1, "", "")}), [config]) == "systemd"


def test_the_administrators_file_wins_and_folders_count(tmp_path):
    for name, value in {"usr.conf": "a", "etc.conf": "b"}.items():
        (tmp_path / name).write_text(f"X={value}\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/9.conf").write_text("X=z\n")
    (tmp_path / "d/1.conf").write_text("X=y\n")
    files = [tmp_path / "usr.conf", tmp_path / "etc.conf", tmp_path / "d", tmp_path / "none"]
    assert reboot.setting("X", "-", files[:2]) == "b"
    assert reboot.setting("X", "-", files) == "z"
    assert reboot.setting("Y", "-", files) == "-"


def test_an_unknown_method_is_an_error(config):
    config.write_text("REBOOT_METHOD=magic\n")
    with pytest.raises(SafeUpdateError, match=r"magic.*nothing was rebooted"):
        reboot.method(FakeRunner(), [config])


class FakeTool:
    """Answers ``reboot`` and ``--version``; the rest comes from a script."""

    def __init__(self, answers, stderr="", version="6.1.1"):
        answers[("transactional-update", "--version")] = (0, f"transactional-update {version}", "")
        self.run = FakeRunner(answers)
        self.words, self._stderr, self.passed = [], stderr, 0.0

    def now(self):
        return self.passed

    def pause(self, seconds):
        self.passed += seconds

    def invoke(self, words, options, limits):
        self.words.append(words)
        result = Result(argv=("t",), returncode=0, stdout="", stderr=self._stderr)
        found = type("Outcome", (), {"result": result})()
        found.check = lambda: found
        return found


@pytest.mark.parametrize(
    ("name", "answers", "said"),
    [
        ("systemd", {RUNNING: (0, "stopping\n", "")}, "reboot requested (method systemd)"),
        ("systemd", {RUNNING: (0, "running\n", ""), JOBS: (0, JOB, "")}, "reboot requested"),
        ("kexec", {RUNNING: (1, "stopping\n", "")}, "method kexec"),
        ("rebootmgr", {**MANAGER, STATUS: (2, "", "")}, "method rebootmgr"),
        # inside its window, or at once: it has told systemd, and knows nothing of it any more
        (
            "rebootmgr",
            {**MANAGER, STATUS: (0, "", ""), RUNNING: (1, "stopping\n", "")},
            "method rebootmgr",
        ),
        (
            "rebootmgr",
            {**MANAGER, STATUS: (0, "", ""), RUNNING: (0, "running\n", ""), JOBS: (0, JOB, "")},
            "method rebootmgr",
        ),
        ("kured", {}, "method kured"),
        ("none", {}, "nothing reboots by itself"),
        ("notify", {}, "users were told"),
    ],
)
def test_a_reboot(tmp_path, config, name, answers, said):
    config.write_text(f"REBOOT_METHOD={name}\n")
    (tmp_path / "kured").touch()
    tool = FakeTool(answers)
    found = reboot.reboot(tool, limits=Limits(), files=[config], kured_file=tmp_path / "kured")
    assert said in found
    assert tool.words == [["reboot"]]


def test_a_reboot_may_take_a_moment_to_be_seen(config):
    config.write_text("REBOOT_METHOD=rebootmgr\n")
    tool = FakeTool({**MANAGER, STATUS: (0, "", ""), **IDLE})
    tool.pause = lambda seconds: tool.run.answers.update({RUNNING: (1, "stopping\n", "")})
    assert "requested" in reboot.reboot(tool, limits=Limits(), files=[config])


@pytest.mark.parametrize(
    "off",
    [
        {FULL: (0, "Status: Reboot not requested (reboots temporarily disabled)\n", "")},
        {STRATEGY: (0, "Reboot strategy: off\n", "")},
    ],
    ids=["beside a strategy", "as the strategy"],
)
def test_rebootmgr_that_is_off_is_not_asked(config, off):
    config.write_text("REBOOT_METHOD=auto\n")
    tool = FakeTool({**MANAGER, **off, ACTIVE: (0, "", ""), STATUS: (2, "", "")})
    with pytest.raises(SafeUpdateError, match=r"rebootmgr is off.*rebootmgr\.set_strategy"):
        reboot.reboot(tool, limits=Limits(), files=[config])
    assert tool.words == []


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("systemd", {RUNNING: (0, "running\n", ""), JOBS: (0, "1 web.service start\n", "")}),
        ("rebootmgr", {**MANAGER, STATUS: (0, "", ""), **IDLE}),
        ("rebootmgr", {**MANAGER, STATUS: (1, "", "Failed to connect to rebootmgrd\n"), **IDLE}),
        ("kured", {}),
    ],
)
def test_a_reboot_that_does_not_happen(tmp_path, config, name, answers):
    config.write_text(f"REBOOT_METHOD={name}\n")
    tool = FakeTool(answers, stderr="rebootmgrctl: command not found\n")
    with pytest.raises(SafeUpdateError, match=r"returned 0, but no reboot.*command not found"):
        reboot.reboot(tool, limits=Limits(), files=[config], kured_file=tmp_path / "none")


@pytest.mark.parametrize(
    ("version", "level", "allowed", "error"),
    [
        ("4.5.0", "soft-reboot", "true", "came with 4.6"),
        ("6.1.1", "reboot", "true", "needed: reboot"),
        ("6.1.1", "", "true", "not known"),
        ("6.1.1", "soft-reboot", "false", "REBOOT_ALLOW_SOFT_REBOOT"),
        ("6.1.1", "soft-reboot", "true", None),
    ],
)
def test_soft_reboot(tmp_path, config, version, level, allowed, error):
    config.write_text("REBOOT_METHOD=systemd\n")
    needed, tukit = tmp_path / "needed", tmp_path / "tukit.conf"
    tukit.write_text(f"REBOOT_ALLOW_SOFT_REBOOT={allowed}\n")
    if level:
        needed.write_text(f"{level}\n")
    tool = FakeTool({RUNNING: (0, "stopping\n", "")}, version=version)
    given = {"limits": Limits(), "needed": needed, "tukit": [tukit], "files": [config]}
    if error is None:
        assert "requested" in reboot.soft_reboot(tool, **given)
        return
    with pytest.raises(InputError, match=error):
        reboot.soft_reboot(tool, **given)
    assert tool.words == []
