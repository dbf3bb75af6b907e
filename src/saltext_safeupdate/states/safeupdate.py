"""
States of safeupdate
====================

.. versionadded:: 0.1.0

.. code-block:: yaml

    safeupdate:
      safeupdate.enabled: []

    minion-update:
      safeupdate.updated:
        - version: '3008.3'

    minion-restart:
      safeupdate.restarted:
        - watch:
          - file: /etc/salt/minion.d/some.conf
"""

import inspect

from saltext_safeupdate.admin import errors

__virtualname__ = "safeupdate"


def __virtual__():
    if "safeupdate.status" not in __salt__:
        return False, "the execution module safeupdate is not there"
    return __virtualname__


@errors.for_state
def enabled(name, config_file=None, stop_guard=True, settings=None):
    """
    Set the minion up for safe updates: executor, engine and stop guard.

    Existing executors and engines of the minion stay: the file repeats the entries of the main
    configuration file that it would hide. When this state runs again, it takes over changes made
    there. A set-up by hand is not changed; only the stop guard is added. If the configuration has
    changed, the minion gets a deferred restart. If the last update of the minion failed or was
    rolled back, the result has a warning.

    The state fails, and writes nothing, if the configuration would not be complete: if Salt cannot
    use the present lists, if another file would hide ours, or if another file would put another
    executor first.

    Inside a transaction of a transactional system, the files are written into the snapshot. The
    minion restarts when the transaction is closed, or with the reboot.

    .. code-block:: yaml

        safeupdate:
          safeupdate.enabled:
            - settings:
                jobs_timeout: 1800

    You can also apply it without an SLS:

    .. code-block:: bash

        salt '*' state.single safeupdate.enabled name=x settings='{jobs_timeout: 1800}'

    name
        Any text.

    config_file
        The file that gets the configuration. The minion has to include it. Defaults to
        ``_safeupdate.conf`` in the directory that ``default_include`` of this minion names, such as
        ``/etc/salt/minion.d``, or to the file there that an earlier run has written.

    stop_guard
        Whether every stop of the service, by anyone, waits for running jobs. A restart hands the
        minion over if that is possible, and waits otherwise. Defaults to ``True``. It has no effect
        without systemd.

    settings
        Settings to write below ``safeupdate:`` in the configuration of the minion, as a mapping of
        the keys of the configuration reference, such as ``{restart_jitter: 300}``. The pillar
        ``safeupdate`` is used as well; settings given here override it. Settings that an earlier
        run wrote and this one does not name are removed. Settings that others have written stay.
        With neither settings nor pillar, nothing changes. An unknown key or an invalid value is an
        error.
    """
    from salt.exceptions import CommandExecutionError

    from saltext_safeupdate.admin.setup import set_up
    from saltext_safeupdate.admin.updates import inside
    from saltext_safeupdate.core.errors import SafeUpdateError
    from saltext_safeupdate.this_host import Host

    ret = {"name": name, "result": True, "changes": {}, "comment": "The minion is set up."}
    warnings = []
    in_snapshot = inside.here()
    try:
        # Inside a transaction the record of the updates is hidden.
        last = {"phase": ""} if in_snapshot else __salt__["safeupdate.status"]()
        if last["phase"] in ("failed", "rolled_back"):
            warnings.append(f"The last update is {last['phase']}: {last['reason']}")
    except CommandExecutionError as err:
        warnings.append(f"The result of the last update is not known: {err}")
    try:
        host = inside.snapshot(__opts__) if in_snapshot else Host(__opts__)
        pillar = __opts__.get("pillar") or {}
        wanted_settings = set_up.settings_of(settings, pillar.get("safeupdate"))
        wanted = set_up.SetUp(host, config_file, bool(stop_guard), wanted_settings)
        warnings += wanted.warnings
        if warnings:
            ret["warnings"] = warnings
        if in_snapshot and stop_guard and not __opts__["test"]:
            inside.ask_for_guard()
        ret["changes"] = wanted.changes()
        if not ret["changes"]:
            return ret
        if __opts__["test"]:
            ret["result"] = None
            ret["comment"] = f"{', '.join(ret['changes'])} would be written."
            if wanted.restarts:
                ret["comment"] += " The minion would restart."
            return ret
        wanted.carry_out()
    except SafeUpdateError as err:
        return {**ret, "result": False, "changes": {}, "comment": str(err)}
    ret["comment"] = f"{', '.join(ret['changes'])} changed."
    if wanted.restarts:
        given = {"reason": "safeupdate.enabled", "jitter": wanted.jitter}
        try:
            ret["comment"] += f" {__salt__['safeupdate.restart'](**given)['comment']}"
        except CommandExecutionError as err:
            ret["result"] = False
            ret["comment"] += (
                f" The minion has to restart, but the restart could not be requested: {err}"
            )
    return ret


@errors.for_state
def disabled(name):
    """
    Turn safeupdate off on the minion: restore the state from before :py:func:`enabled`.

    The stop guard and the configuration are removed at once; settings that others have written into
    the same file stay. If the minion runs with safeupdate, it gets a deferred restart. When it runs
    without safeupdate, the database, the locks, and everything else below ``state_dir`` and
    ``run_dir`` are removed: the records of updates, the packages kept for a rollback, and the
    ledger. The package of the extension stays; remove it afterwards if you want to.

    The state fails, and changes nothing, during an update, if jobs are held or interrupted, if a
    return has not reached its master yet, and on a minion that was set up by hand. If there are
    such jobs after the restart, the directories are kept; the reason of the restart in
    ``safeupdate.status`` says so.

    Inside a transaction of a transactional system, this state is refused: apply it outside.

    .. code-block:: yaml

        safeupdate:
          safeupdate.disabled: []

    name
        Any text.
    """
    from saltext_safeupdate.admin.setup import taking_off
    from saltext_safeupdate.this_host import Host

    ret = {"name": name, "result": True, "changes": {}, "comment": "The minion is not set up."}
    wanted = taking_off.TakingOff(Host(__opts__))
    ret["changes"] = wanted.changes()
    if not ret["changes"]:
        return ret
    paths, restarts = ", ".join(ret["changes"]), wanted.restarts
    if __opts__["test"]:
        comment = f"{paths} would be removed.{wanted.stays}"
        ret["comment"] = comment + " The minion would restart." * restarts
        return {**ret, "result": None}
    problem = wanted.carry_out()
    if problem:
        return {**ret, "result": False, "changes": {}, "comment": problem}
    ret["comment"] = f"{paths} removed.{wanted.stays}"
    if restarts:
        given = {"reason": "safeupdate.disabled", "jitter": wanted.jitter}
        asked = __salt__["safeupdate.restart"](**given)
        ret["comment"] = (
            f"{paths} are removed.{wanted.stays} {asked['comment']} The rest is removed then."
        )
    return ret


@errors.for_state
def master_enabled(name, window=300, main_file=None, config_file=None):
    """
    Set the master of this host up: jobs that minions have missed are published again.

    Then minions may also ask the master for its version. Existing engines and permissions of the
    master stay, as in :py:func:`enabled`. Restart the master afterwards: it reads its engines when
    it starts.

    .. code-block:: yaml

        safeupdate-master:
          safeupdate.master_enabled:
            - window: 600

    name
        Any text.

    window
        How far the master looks back, in seconds. Defaults to ``300``. If another file already
        names the engine, its options stay.

    main_file
        The main configuration file of the master. Defaults to the file ``master`` in the directory
        of the minion's configuration, such as ``/etc/salt/master``.

    config_file
        The file that gets the configuration. The master has to include it. Defaults to
        ``_safeupdate.conf`` in the directory that its ``default_include`` names.
    """
    from saltext_safeupdate.admin.setup import set_up
    from saltext_safeupdate.this_host import Host

    ret = {"name": name, "result": True, "changes": {}, "comment": "The master is set up."}
    wanted = set_up.master_file(Host(__opts__), main_file, config_file, window)
    ret["changes"] = wanted.changes()
    if wanted.warnings:
        ret["warnings"] = wanted.warnings
    if not ret["changes"]:
        return ret
    if __opts__["test"]:
        return {**ret, "result": None, "comment": f"{wanted.path} would be written."}
    wanted.write()
    return {**ret, "comment": f"{wanted.path} changed. Restart salt-master once."}


@errors.for_state
def updated(name, version=None, allow_downgrade=False, source=None):
    """
    Make sure that the minion has a version; request the update if it has another version.

    The update installs while jobs run if that is possible, and otherwise when this run and every
    other job has ended. The minion is watched afterwards. The result is in ``safeupdate.status``,
    and in this state when it runs again: it fails for a version that was rolled back.

    Inside a transaction of a transactional system, the request is passed to the running minion when
    the transaction is closed. Its answer is the result of this state.

    .. code-block:: yaml

        minion-update:
          safeupdate.updated:
            - version: '3008.3'

    name
        Any text.

    version
        The version, in full or without the part that packaging adds. Quote it: as a number, 3007.10
        is 3007.1, so a number with one decimal is refused. Defaults to the newest available
        version.

    allow_downgrade
        Whether the version may be older than the installed one. Defaults to ``False``.

    source
        ``packages``, ``index``, or a directory with builds, as for
        :py:func:`safeupdate.plan <saltext_safeupdate.modules.safeupdate.plan>`.
    """
    from saltext_safeupdate.admin.updates import inside
    from saltext_safeupdate.admin.updates import updated as states

    wanted = {"allow_downgrade": allow_downgrade, "test": bool(__opts__["test"])}
    if source is not None:
        wanted["source"] = source
    if inside.here():
        return {"name": name, **inside.update_asked(__low__, version, **wanted)}
    return {"name": name, **states.updated(__salt__, version, **wanted)}


@errors.for_state
def restarted(name, now=False, timeout=600):
    """
    Do nothing by itself; request a deferred restart of the minion if a watched state has changes.

    The safe form of ``service.running: watch`` for the minion's own service. The restart comes
    after the run. With ``now: True`` it comes during the run, and the run continues after it.

    .. code-block:: yaml

        minion-restart:
          safeupdate.restarted:
            - watch:
              - file: /etc/salt/minion.d/some.conf

    name
        Any text.

    now
        Whether the minion restarts before the next state. The run continues in the new minion when
        every other job has ended, under its JID, and returns once. With ``watch`` the minion
        restarts if the watched state has changes, with ``listen`` at the end of the run. Without
        these, it restarts unless ``onchanges``, ``onlyif`` or ``unless`` prevents it. It is refused
        in the same cases as :py:func:`rebooted`. Defaults to ``False``.

        .. versionadded:: 0.1.0

    timeout
        With ``now``: seconds in which the minion has to restart. After that time, this state fails,
        and the run continues. Defaults to ``600``.

        .. versionadded:: 0.1.0
    """
    if now:
        from saltext_safeupdate.admin.updates import midst

        if not midst.is_left_to_watching(__low__, __lowstate__):
            return {"name": name, **midst.restart(__opts__, name, timeout)}
    return {
        "name": name,
        "result": True,
        "changes": {},
        "comment": "The minion restarts if something that this state watches has changed.",
    }


@errors.for_state
def rebooted(name, timeout=600, message=None):
    """
    Reboot the system during the run; the run continues after the boot.

    The job is suspended: it has no process until the boot. Its results so far are recorded. After
    the boot the minion continues with the next state, under the same JID, and the master gets one
    return. There may be several reboots in one run. States with ``parallel: True`` end before the
    reboot; other jobs have ``safeupdate:shutdown_timeout`` seconds to end.

    It reboots whenever it runs, unless ``onchanges``, ``onlyif`` or ``unless`` prevents it. With
    ``watch`` it reboots only if the watched state has changes, with ``listen`` at the end of the
    run.

    The state fails, and nothing is done, in a job that no master published (``salt-call``, the
    schedule), with ``parallel: True``, with ``multiprocessing: False``, and on transactional
    systems: use :py:func:`transactional_update.rebooted
    <saltext_safeupdate.states.transactional_update.rebooted>` there.

    .. versionadded:: 0.1.0

    .. code-block:: yaml

        new-kernel:
          pkg.latest:
            - name: linux-image-amd64

        boot-it:
          safeupdate.rebooted:
            - onchanges:
              - pkg: new-kernel

    name
        Any text.

    timeout
        Seconds in which the system has to go down. After that time, this state fails, and the run
        continues as after any failed state. Defaults to ``600``.

    message
        A message for the users of the system. Defaults to the name of the state.
    """
    from saltext_safeupdate.admin.updates import midst

    if midst.is_left_to_watching(__low__, __lowstate__):
        comment = "The system reboots if something that this state watches has changed."
        return {"name": name, "result": True, "changes": {}, "comment": comment}
    return {"name": name, **midst.reboot(__opts__, name, timeout, message)}


@errors.for_state
def mod_watch(name, sfun="restarted", **kwargs):
    """
    Run the reaction of a state of this module to changes of a watched state.

    ``restarted`` restarts the minion, and ``rebooted`` reboots the system. All others request a
    deferred restart of the minion, unless they have failed or have changed something.
    """
    from saltext_safeupdate.admin.updates import midst

    if sfun == "rebooted" or kwargs.get("now"):
        return {"name": name, **midst.watched(__opts__, sfun, name, kwargs)}
    if sfun in _OTHERS:
        # Salt also calls this in place of a state that has failed, and forgets the failure.
        names = inspect.signature(_OTHERS[sfun]).parameters
        ret = _OTHERS[sfun](name, **{key: kwargs[key] for key in names if key in kwargs})
        if ret["result"] is False or ret["changes"]:
            return ret
    ret = {"name": name, "result": True, "changes": {"restart": "deferred"}, "comment": ""}
    if __opts__["test"]:
        ret["result"] = None
        ret["comment"] = "The minion would restart."
        return ret
    from saltext_safeupdate.admin.updates import steering

    reason = f"state {name}"
    # The run adds a comment of its own when it has asked.
    if not steering.restart_after_run(reason):
        ret["comment"] = __salt__["safeupdate.restart"](reason=reason)["comment"]
    return ret


_OTHERS = {each.__name__: each for each in (enabled, disabled, master_enabled, updated)}
