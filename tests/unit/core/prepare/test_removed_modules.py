import functools
import pathlib

import pytest
import salt
import salt.version

import saltext_safeupdate
from devtools import removed_modules as tool
from saltext_safeupdate.core.prepare import removed_modules
from saltext_safeupdate.core.prepare.removed_modules import Gone, Use, gone, series, used
from saltext_safeupdate.core.prepare.removed_modules_data import FILES, NAMES, SERIES

SALT = pathlib.Path(salt.__file__).parent
INSTALLED = series(salt.version.__version__)


@functools.cache
def _installed(kind):
    """Return the names that each file of the installed Salt offers."""
    return tool.files(SALT, kind)


def _told(kind):
    """Return the files that the data gives the installed series."""
    return {
        name
        for span, names in FILES[kind].items()
        if span.split("-")[0] <= INSTALLED <= span.split("-")[1]
        for name in names.split()
    }


@pytest.mark.parametrize("kind", tool.KINDS)
def test_the_data_is_what_the_installed_salt_has(kind):
    assert _told(kind) == set(_installed(kind))


@pytest.mark.parametrize("kind", NAMES)
def test_the_names_go_with_the_files(kind):
    installed = _installed(kind)
    offered = set().union(*installed.values())
    for file, names in NAMES[kind].items():
        if file in installed:
            assert set(names.split()) <= installed[file], file
        else:
            assert not set(names.split()) & offered, file


def test_the_data_can_be_written_anew(tmp_path):
    written = tool.written(
        {
            "1": _salt(tmp_path / "1", zfs="zfs", dockermod="docker"),
            "2": _salt(tmp_path / "2", zfs="zfs"),
        }
    )
    scope = {}
    exec(written, scope)
    assert scope["SERIES"] == ("1", "2")
    assert {span: names.split() for span, names in scope["FILES"]["modules"].items()} == {
        "1-1": ["dockermod"],
        "1-2": ["zfs"],
    }
    assert scope["NAMES"]["modules"] == {"dockermod": "docker"}


def _salt(root, **modules):
    for kind in tool.KINDS:
        (root / kind).mkdir(parents=True)
    for file, name in modules.items():
        text = f"__virtualname__ = '{name}'\ndef __virtual__():\n    return __virtualname__\n"
        (root / "modules" / f"{file}.py").write_text(text)
    return root


def test_every_packaged_file_is_one_that_goes_and_in_one_package():
    listed = [file for files in removed_modules.PACKAGES.values() for file in files.split()]
    assert len(listed) == len(set(listed))
    going = {
        f"{kind}/{name}"
        for kind, spans in FILES.items()
        for span, names in spans.items()
        if not span.endswith(SERIES[-1])
        for name in names.split()
    }
    assert set(listed) - going == set()


def test_the_modules_that_we_carry_are_in_the_list():
    root = pathlib.Path(saltext_safeupdate.__file__).parent
    ours = [root / f"{file}.py" for file in removed_modules.PACKAGES["saltext-safeupdate"].split()]
    assert [path for path in ours if not path.exists()] == []


@pytest.mark.parametrize("state", removed_modules.HOLLOW)
def test_a_hollow_state_stays_without_its_module(state):
    assert (SALT / "states" / f"{state}.py").exists()
    module = SALT / "modules" / f"{removed_modules.HOLLOW[state]}.py"
    assert module.exists() == (INSTALLED < "3008")


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("3007.15", "3007"),
        ("3008.3+moved", "3008"),
        ("3006.28-1", "3006"),
        ("1:3006.9-2", "3006"),
        ("3008", "3008"),
        ("2019.2.0", "2019"),
        ("", None),
        ("30061", None),
    ],
)
def test_the_series_of_a_version(version, found):
    assert series(version) == found


def test_what_chunks_use():
    chunks = [
        {"state": "file", "fun": "managed", "name": "/etc/x.conf"},
        {"state": "module", "fun": "run", "name": "zpool.scrub"},
        {"state": "module", "fun": "run", "name": "an id", "mongodb.user_list": [{"user": "x"}]},
        {"state": "cmd", "fun": "run", "name": "true", "onlyif": [{"fun": "docker.ps"}, "true"]},
        {"state": "cmd", "fun": "run", "name": "true", "unless": {"fun": "git.version"}},
        {"state": "file", "fun": "line", "content": ["__slot__:salt:redis.get_key(a).x"]},
        {"state": "schedule", "fun": "present", "name": "s", "function": "lvs.get_rules"},
    ]
    assert {use.function for use in used(chunks) if use.kind == "modules"} == {
        "zpool.scrub",
        "mongodb.user_list",
        "docker.ps",
        "git.version",
        "redis.get_key",
        "lvs.get_rules",
    }
    assert {use.function for use in used(chunks) if use.kind == "states"} == {
        "file.managed",
        "file.line",
        "module.run",
        "cmd.run",
        "schedule.present",
    }


def _gone(*uses, current="3007.15", target="3008.3"):
    return {(each.use.function, each.package) for each in gone(uses, current, target)}


def test_what_3008_no_longer_has_and_who_brings_it_back():
    assert _gone(
        Use("states", "zfs.filesystem_present"),
        Use("modules", "docker.ps"),
        Use("states", "file.managed"),
        Use("modules", "test.ping"),
        Use("states", "gem.installed"),
        Use("beacons", "wtmp"),
        Use("returners", "redis"),
    ) == {
        ("zfs.filesystem_present", "saltext.zfs"),
        ("docker.ps", "saltext.dockermod"),
        ("gem.installed", None),
        ("wtmp", None),
        ("redis", "saltext.redis"),
    }


def test_what_3007_no_longer_has():
    use = Use("states", "azurearm_dns.zone_present")
    assert _gone(use, current="3006.28", target="3007.15") == {(use.function, "saltext.azurerm")}
    assert _gone(use, current="3007.15", target="3008.3") == set(), "it was not there before"


def test_within_a_series_and_on_the_way_back_nothing_goes():
    use = Use("states", "zfs.filesystem_present")
    assert _gone(use, current="3007.1", target="3007.15") == set()
    assert _gone(use, current="3008.3", target="3007.15") == set()


def test_a_series_that_is_not_known_yet_has_at_most_what_the_newest_has():
    use = Use("states", "zfs.filesystem_present")
    assert _gone(use, current="3007.15", target="3009.0") == {(use.function, "saltext.zfs")}


def test_a_name_that_several_files_share_goes_with_the_one_that_has_it_here():
    assert _gone(Use("modules", "pkg.install")) == set()
    assert _gone(Use("modules", "pkg.install", "aptpkg")) == set()
    assert _gone(Use("modules", "pkg.install", "apkpkg")) == {("pkg.install", "saltext.alpine")}


def test_a_state_whose_module_goes_goes_with_it():
    assert _gone(Use("states", "apache_site.enabled")) == {
        ("apache_site.enabled", "saltext.apache")
    }
    assert _gone(Use("states", "makeconf.present")) == {("makeconf.present", None)}


def test_what_this_extension_carries_does_not_go():
    assert (
        _gone(Use("modules", "transactional_update.reboot"), Use("modules", "rebootmgr.status"))
        == set()
    )


def test_each_use_is_told_once():
    use = Use("states", "zfs.filesystem_present")
    assert gone([use, use], "3007.15", "3008.3") == [Gone(use, "saltext.zfs")]
