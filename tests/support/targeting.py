"""Each way to target, and minions that a master can wait for before they have ever run."""

from pathlib import Path

import salt.config
import salt.loader
import yaml
from cryptography.hazmat.primitives import serialization as how
from cryptography.hazmat.primitives.asymmetric import rsa

# What two minions are; a master may take each of them for the other.
GRAINS = {
    "one": {"role": "web", "ipv4": ["10.1.0.5"], "ipv6": ["fd00:1::5"]},
    "two": {"role": "db", "ipv4": ["10.2.0.5"], "ipv6": ["fd00:2::5"]},
}
PILLAR = {"one": {"env": "prod"}, "two": {"env": "test"}}
NODEGROUPS = {"webs": "G@role:web", "others": ["not", "N@webs"]}
# Targets that need nothing but names, and those for which a master looks up grains and pillar.
BY_NAME = (
    ("on*", "glob"),
    (["two", "nobody"], "list"),
    ("tw.", "pcre"),
    ("on? or E@nobody", "compound"),
)
BY_FACTS = (
    ("role:web", "grain"),
    ("role|d*", "grain", "|"),
    ("role:w.b", "grain_pcre"),
    ("env:prod", "pillar"),
    ("env|test", "pillar", "|"),
    ("env:pr.d", "pillar_pcre"),
    ("env:test", "pillar_exact"),
    ("10.1.0.0/16", "ipcidr"),
    ("fd00:2::/32", "ipcidr"),
    ("webs", "nodegroup"),
    ("others", "nodegroup"),
    ("not G@role:web", "compound"),
    ("* and not I@env:test", "compound"),
    ("not S@10.1.0.0/16 and not J@env:pro.*", "compound"),
    ("P@role:d. or ( L@one,two and not N@others )", "compound"),
)


# What a master may know of its minions: for each, whose facts it takes for its own.
KNOWN = {
    "true": {"one": "one", "two": "two"},
    "stale": {"one": "two", "two": "one"},
    "cleared": {"one": None, "two": None},
}


def described(path):
    """Return the options of a master that knows the node groups, and gives each its pillar."""
    roots = Path(path) / "pillar"
    roots.mkdir()
    tops = {"base": {name: [name] for name in PILLAR}}
    for name, text in {"top": tops, **PILLAR}.items():
        (roots / f"{name}.sls").write_text(yaml.safe_dump(text))
    return {"pillar_roots": {"base": [str(roots)]}, "nodegroups": NODEGROUPS}


def accept(master, minion):
    """Have a master know the key of a minion that has not run yet."""
    made = rsa.generate_private_key(65537, 2048)
    private = made.private_bytes(
        how.Encoding.PEM, how.PrivateFormat.TraditionalOpenSSL, how.NoEncryption()
    )
    public = made.public_key().public_bytes(how.Encoding.PEM, how.PublicFormat.SubjectPublicKeyInfo)
    place = Path(minion.config.get("pki_dir", minion.path / "root/etc/salt/pki/minion"))
    place.mkdir(parents=True)
    for name, data in (("minion.pem", private), ("minion.pub", public)):
        (place / name).write_bytes(data)
        (place / name).chmod(0o400)
    (Path(master.opts["pki_dir"]) / "minions" / minion.id).write_bytes(public)


def publish_all(master, minions, command, *more):
    """
    Publish each way to target, whatever the master knows; each job writes a word of its own.

    Returns the jobs, the words that each minion is to write, by its ID, and what the master
    knew when it waited for minions that are not meant.
    """
    means = {each.id: matching(each.id) for each in minions}
    jids, words, too_many = set(), {name: [] for name in means}, set()
    for state, known in KNOWN.items():
        for each in minions:
            taken_for = known[each.id]
            master.remember(each, GRAINS.get(taken_for), PILLAR.get(taken_for))
        for number, aim in enumerate((*BY_FACTS, *(BY_NAME if state == "true" else ()))):
            target, kind, *delimiter = aim
            word = f"{state}{number}"
            named = {"delimiter": delimiter[0]} if delimiter else {}
            jid, waited = master.aim(target, kind, "cmd.run", command(word), *more, **named)
            if jid:
                jids.add(jid)
            # The master may know minions of earlier tests, too.
            for name in means.keys() & set(waited):
                if means[name](*aim):
                    words[name].append(word)
                else:
                    too_many.add(state)
    return jids, words, too_many


def matching(name):
    """Return what says, by Salt's own matchers, whether a minion is meant by a target."""
    opts = salt.config.DEFAULT_MINION_OPTS.copy()
    opts.update(id=name, grains=GRAINS[name], pillar=PILLAR[name], nodegroups=NODEGROUPS)
    # Those of another minion in this process must not be the same modules.
    matchers = salt.loader.matchers(opts, loaded_base_name=f"matching{name}")

    def means(target, kind, delimiter=":"):
        more = {"delimiter": delimiter} if kind in ("grain", "grain_pcre", "pillar") else {}
        if kind == "nodegroup":
            target, kind = f"N@{target}", "compound"
        return bool(matchers[f"{kind}_match.match"](target, opts=opts, **more))

    return means
