"""Who is meant by a target: the same as Salt says, if it has an accepted key."""

from __future__ import annotations

import os
import pathlib

import pytest
import salt.cache
import salt.config
import salt.utils.minions

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.fleet.request import from_mapping
from saltext_safeupdate.master import planning, stocktaking
from saltext_safeupdate.master.store import Store
from saltext_safeupdate.master.targets import grains_of, resolved, targeted

NAMES = ["db1", "web1", "web2", "web3.example.com"]
# Since 3008 keys may be kept elsewhere than in files.
HAS_OTHERS = "keys.cache_driver" in salt.config.DEFAULT_MASTER_OPTS


def site(tmp_path: pathlib.Path) -> dict[str, object]:
    """Return the options of a master that has accepted the keys."""
    found = salt.config.DEFAULT_MASTER_OPTS.copy()
    pki = tmp_path / "pki"
    places = {"cachedir": str(tmp_path), "root_dir": str(tmp_path), "pki_dir": str(pki)}
    found.update(places, id="m_master", __role="master")
    found["nodegroups"] = {"front": "web1,web2 or L@db1"}
    for place in ("minions", "minions_pre", "minions_rejected", "minions_denied"):
        (pki / place).mkdir(parents=True)
    for name in NAMES:
        (pki / "minions" / name).write_text("key")
    return found


@pytest.fixture
def opts(tmp_path: pathlib.Path) -> dict[str, object]:
    return site(tmp_path)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A master that knows grains as well: of "web9", whose key was rejected, too."""
    found = site(tmp_path_factory.mktemp("known"))
    (pathlib.Path(str(found["pki_dir"])) / "minions_rejected" / "web9").write_text("key")
    cache = salt.cache.factory(found)
    for name in (*NAMES, "web9"):
        # Where each Salt keeps them.
        grains = {"role": name[:3]}
        cache.store("grains", name, grains)
        cache.store(f"minions/{name}", "data", {"grains": grains, "pillar": {}})
    return found


def test_the_grains_that_the_master_has(known: dict[str, object], opts: dict[str, object]) -> None:
    assert grains_of(known, ["web1", "nobody"]) == {"web1": {"role": "web"}}
    assert grains_of(opts, NAMES) == {}


def salts(opts: dict[str, object], target: object, kind: str) -> list[str]:
    return sorted(salt.utils.minions.CkMinions(dict(opts)).check_minions(target, kind)["minions"])


@pytest.mark.parametrize(
    ("target", "kind", "meant"),
    [
        ("*", "glob", NAMES),
        ("web[12]", "glob", ["web1", "web2"]),
        ("db1", "glob", ["db1"]),
        ("nobody", "glob", []),
        ("web2,db1,nobody", "list", ["db1", "web2"]),
        (["web2", "web2", "nobody"], "list", ["web2"]),
        (r"web\d$", "pcre", ["web1", "web2"]),
        ("role:web", "grain", NAMES[1:]),
        ("G@role:web and not web2", "compound", ["web1", "web3.example.com"]),
        ("not L@web1,web2", "compound", ["db1", "web3.example.com"]),
        ("front", "nodegroup", None),
        ("a,web1", "glob", None),
    ],
)
def test_it_is_who_salt_says(
    known: dict[str, object], target: object, kind: str, meant: list[str] | None
) -> None:
    found = targeted(known, target, kind)
    assert found == sorted(set(salts(known, target, kind)))
    assert meant in (None, found)


def test_who_has_no_accepted_key_is_not_meant(known: dict[str, object]) -> None:
    for greedy in (True, False):
        assert targeted(known, "role:web", "grain", greedy=greedy) == NAMES[1:]
    assert targeted(known, "web9", "list") == []


def test_a_resource_is_no_minion(opts: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Since 3008 '*' means the resources of minions as well; they have no key and no Salt."""
    real = salt.utils.minions.CkMinions.check_minions

    def more(*args: object, **kwargs: object) -> dict[str, list[str]]:
        return {"minions": [*real(*args, **kwargs)["minions"], "a-resource"]}

    monkeypatch.setattr(salt.utils.minions.CkMinions, "check_minions", more)
    assert "a-resource" in salts(opts, "*", "glob")
    assert targeted(opts, "*", "glob") == NAMES


ODD = {
    "a hidden file": lambda pki: (pki / "minions" / ".key_cache").write_text("x"),
    "a directory": lambda pki: (pki / "minions" / "web4").mkdir(),
    "a link": lambda pki: (pki / "minions" / "web4").symlink_to("web1"),
    "a broken name": lambda pki: (pki / "minions" / "we\\b").write_text("x"),
    "a name of other letters": lambda pki: (pki / "minions" / "wéb").write_text("x"),
    "accepted and waiting": lambda pki: (pki / "minions_pre" / "web1").write_text("x"),
    "accepted and rejected": lambda pki: (pki / "minions_rejected" / "web1").write_text("x"),
    "accepted and denied": lambda pki: (pki / "minions_denied" / "web1").write_text("x"),
    "nothing rejected": lambda pki: (pki / "minions_rejected").rmdir(),
    "none accepted": lambda pki: (pki / "minions").rename(pki / "other"),
    "elsewhere": lambda pki: (
        (pki / "minions").rename(pki.parent / "far"),
        (pki / "minions").symlink_to(pki.parent / "far"),
    ),
    "nearby": lambda pki: (
        (pki / "minions").rename(pki / "near"),
        (pki / "minions").symlink_to("near"),
    ),
    "all elsewhere": lambda pki: (
        pki.rename(pki.parent / "far"),
        pki.symlink_to("far", target_is_directory=True),
    ),
}


@pytest.mark.parametrize("tgt_type", ["glob", "list", "grain"])
def test_a_salt_that_knows_more_of_resources_is_not_asked(
    opts: dict[str, object], monkeypatch: pytest.MonkeyPatch, tgt_type: str
) -> None:
    new = "_augment_with_resources_of_resources"
    monkeypatch.setattr(salt.utils.minions.CkMinions, new, list, raising=False)
    with pytest.raises(SafeUpdateError, match=f"not known: it has {new}"):
        targeted(opts, "web1", tgt_type)


@pytest.mark.parametrize("odd", ODD)
def test_keys_are_listed_as_salt_lists_them(opts: dict[str, object], odd: str) -> None:
    ODD[odd](pathlib.Path(str(opts["pki_dir"])))
    assert targeted(opts, "*", "glob") == sorted(salts(opts, "*", "glob"))


def test_keys_that_are_not_files_are_listed_by_salt(opts: dict[str, object]) -> None:
    """Before 3008 the setting is unknown, and they are files."""
    opts["keys.cache_driver"] = "mmap_key"
    if HAS_OTHERS:
        cache = salt.cache.Cache(opts, driver="mmap_key")
        cache.store("keys", "elsewhere", {"state": "accepted", "pub": "key"})
        cache.store("keys", "waits", {"state": "pending", "pub": "key"})
    assert targeted(opts, "*", "glob") == (["elsewhere"] if HAS_OTHERS else NAMES)


def test_keys_are_listed_once(known: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are for each part of a compound target otherwise."""
    listed: list[str] = []
    for name in ("scandir", "listdir"):

        def noted(path: object, real: object = getattr(os, name)) -> object:
            listed.append(os.path.basename(str(path)))
            return real(path)  # type: ignore[operator]

        monkeypatch.setattr(os, name, noted)
    assert targeted(known, "web* and not E@web1 or L@db1", "compound") == [
        *("db1", "web2", "web3.example.com")
    ]
    assert listed.count("minions") == 1


def remember(opts: dict[str, object], name: str, grains: object, pillar: object) -> None:
    """Keep what a minion has told where this Salt keeps it; None for what was cleared."""
    cache = salt.cache.factory(opts)
    data = {"grains": grains, "pillar": pillar}
    if not HAS_OTHERS:
        cache.store(f"minions/{name}", "data", {k: v for k, v in data.items() if v is not None})
        return
    for bank, value in (("grains", grains), ("pillar", pillar)):
        if value is not None:
            cache.store(bank, name, value)


def half_known(tmp_path: pathlib.Path) -> dict[str, object]:
    """A master that has lost the grains of web1 and the pillar of web2, and all of web3."""
    opts = site(tmp_path)
    debian = {"os": "Debian", "ipv4": ["10.0.0.1"]}
    opts["nodegroups"] = {
        "new": "not G@os:Debian",
        "debian": "G@os:Debian",
        "names": "web*",
        "both": "N@new or N@names",
    }
    remember(opts, "db1", debian, {"env": "prod"})
    remember(opts, "web1", None, {"env": "prod"})
    remember(opts, "web2", {"os": "SUSE", "ipv4": ["192.168.0.1"]}, None)
    return opts


WEB3 = NAMES[-1]


@pytest.mark.parametrize(
    ("target", "kind", "sure", "never"),
    [
        ("not G@os:Debian", "compound", ["web2"], ["web1", WEB3]),
        ("not S@10.0.0.0/8", "compound", ["web2"], ["web1", WEB3]),
        ("not P@os:Deb.*", "compound", ["web2"], ["web1", WEB3]),
        (["not", "G@os:Debian"], "compound", ["web2"], ["web1", WEB3]),
        ("G@os:Debian", "compound", ["db1"], ["web1", WEB3]),
        ("web* and not G@os:Debian", "compound", ["web2"], ["web1", WEB3]),
        ("not N@debian", "compound", ["web2"], ["web1", WEB3]),
        ("new", "nodegroup", ["web2"], ["web1", WEB3]),
        ("both", "nodegroup", ["web2"], ["web1", WEB3]),
        ("os:Debian", "grain", ["db1"], ["web1", WEB3]),
        ("10.0.0.0/8", "ipcidr", ["db1"], ["web1", WEB3]),
        ("not I@env:test", "compound", ["db1", "web1"], ["web2", WEB3]),
        ("not J@env:te.*", "compound", ["db1", "web1"], ["web2", WEB3]),
        ("not I@env:test and not G@os:SUSE", "compound", ["db1"], ["web1", "web2", WEB3]),
        # Since 3008, Salt looks for pillar only where there are grains.
        ("env:prod", "pillar", ["db1"] if HAS_OTHERS else ["db1", "web1"], ["web2", WEB3]),
        ("names", "nodegroup", ["web1", "web2", WEB3], []),
        ("web* and not L@web1,db1", "compound", ["web2", WEB3], ["web1", "db1"]),
        ("*", "glob", NAMES, []),
    ],
)
def test_of_whom_nothing_is_known_is_not_sure(
    tmp_path: pathlib.Path, target: object, kind: str, sure: list[str], never: list[str]
) -> None:
    opts = half_known(tmp_path)
    found, maybe = resolved(opts, target, kind)
    assert found == sure
    assert set(maybe) <= set(never)
    both = {*targeted(opts, target, kind), *targeted(opts, target, kind, greedy=False)}
    assert {*found, *maybe} == both, "whoever Salt takes for one is left out with a word"


def test_of_whom_nothing_is_known_is_in_no_wave(tmp_path: pathlib.Path) -> None:
    opts = half_known(tmp_path)
    wanted = from_mapping(
        {
            "groups": [{"target": "not G@os:Debian", "tgt_type": "compound"}],
            "version": "3008.3",
        }
    )
    asked: list[str] = []

    def ask(opts: object, minions: list[str], *_: object) -> dict[str, object]:
        asked.extend(minions)
        return {}

    plan = planning.make(opts, wanted, store=Store(opts), ask=ask)
    assert (plan.minions, set(asked)) == (("web2",), {"web2"})
    assert set(plan.unfit) == {"web1", WEB3}
    assert all("its grains or pillar are not known" in why for why in plan.left_out.values())


@pytest.mark.parametrize(
    ("target", "kind"),
    [("not G@os:Debian", "compound"), ("new", "nodegroup"), ("os:Debian", "grain")],
)
def test_without_a_cache_only_names_mean_anybody(
    tmp_path: pathlib.Path, target: str, kind: str
) -> None:
    """Salt takes that for the whole fleet, or for nobody."""
    opts = {**half_known(tmp_path), "minion_data_cache": False}
    for resolve in (resolved, stocktaking.expected):
        with pytest.raises(InputError, match="'minion_data_cache: False'"):
            resolve(opts, target, kind)
        assert resolve(opts, "web[12]", "glob")


def test_one_of_whom_little_is_known_belongs_to_an_earlier_group_that_names_it(
    tmp_path: pathlib.Path,
) -> None:
    """A later group may have it as well, which does not matter."""
    opts = half_known(tmp_path)
    later = {"name": "later", "target": "not G@os:Debian", "tgt_type": "compound"}
    wanted = from_mapping(
        {"groups": [{"name": "named", "target": "web1"}, later], "version": "3008.3"}
    )
    plan = planning.make(opts, wanted, store=Store(opts), ask=lambda *_: {})
    assert plan.group_of["web1"] == "named"
    assert set(plan.left_out) == {WEB3}
