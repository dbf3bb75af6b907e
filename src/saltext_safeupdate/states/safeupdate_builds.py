"""
Keep builds of Salt on a master
===============================

.. versionadded:: 0.1.0

Minions make slots from them: :doc:`/topics/howto/slots`.
"""

from saltext_safeupdate.admin import errors

__virtualname__ = "safeupdate_builds"


def __virtual__():
    return __virtualname__


@errors.for_state
def described(name, version, files, python="", machine=""):
    """
    Make sure that a build of Salt in a directory of this master has its manifest.

    The manifest is written if it is missing, or if a file differs from it. For that, the build is
    unpacked next to it, as a minion does, and removed again. If a minion would refuse the build,
    the state fails and nothing is written. A new manifest needs a new signature.

    .. code-block:: yaml

        /srv/salt/builds/salt-3008.3-onedir-linux-x86_64.tar.xz:
          file.managed:
            - source: https://example.org/salt-3008.3-onedir-linux-x86_64.tar.xz
            - source_hash: https://example.org/salt-3008.3-onedir-linux-x86_64.tar.xz.sha512
            - makedirs: True

        /srv/salt/builds:
          safeupdate_builds.described:
            - version: '3008.3'
            - files:
              - salt-3008.3-onedir-linux-x86_64.tar.xz

    name
        The absolute path of the directory, below the file roots of the master.

    version
        The version of Salt. Quote it: as a number, 3007.10 is 3007.1, so a number with one decimal
        is refused.

    files
        The names of the files of the build in that directory: one tarball, or wheels. ``*`` matches
        any characters.

    python
        For wheels: the version of Python that they are made for, such as ``3.11``, in quotes. Leave
        it out for a tarball.

    machine
        The machine that the build is for, as ``uname -m`` prints it, or ``any``. Defaults to the
        machine of the master.

    .. versionadded:: 0.1.0
    """
    from saltext_safeupdate.admin.setup import described_builds
    from saltext_safeupdate.core.errors import SafeUpdateError

    given = {"python": str(python), "machine": str(machine), "test": bool(__opts__["test"])}
    try:
        return {"name": name, **described_builds.described(name, version, files, **given)}
    except (OSError, SafeUpdateError) as err:
        return {"name": name, "result": False, "changes": {}, "comment": str(err)}
