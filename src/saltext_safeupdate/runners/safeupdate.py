"""
Runner of safeupdate
====================

.. versionadded:: 0.1.0

If a function refuses something, it says so in one line. Then the exit status of ``salt-run`` is 1,
and an orchestration fails. Text from minions is shown in visible characters only.
"""

import time

import salt.utils.args
import salt.version

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import (
    allowing,
    builds,
    draining,
    engine_options,
    onboarding,
    orders,
    own_update,
    people,
    planning,
    policies,
    progress,
    redelivery,
    reports,
    rollouts,
    stocktaking,
    targets,
)
from saltext_safeupdate.master.account import Account, path_of
from saltext_safeupdate.master.calls import Calls
from saltext_safeupdate.master.store import Store

__virtualname__ = "safeupdate"


def __virtual__():
    return __virtualname__


@errors.for_runner
def redeliver(target="*", tgt_type="glob", timeout=30):
    """
    Publish again, under their JIDs, the jobs that minions have missed.

    The engine ``safeupdate_redeliver`` of this master does it. It asks each minion which of the
    latest jobs it has accepted, and which it has missed while it was restarted or was brought back
    after a crash. These are published to it again, unless somebody has given them up. The engine
    also does this by itself whenever a minion starts. Its ``window`` says how far it looks back.

    Returns ``published``, and what was not: ``not_meant``, ``away`` (the minion was off,
    unreachable or stopped by somebody when the job came), ``given_up`` (somebody has ended the job,
    or its caller does not wait or may not publish it any more) and ``undecided`` (the minion could
    not say whether it is meant). Each has minions by JID. ``accepted`` has states of jobs by
    minion, ``no_answer`` and ``not_set_up`` have minions. ``failed`` says why a job could not be
    published again now, by JID; the engine tries it later, and the exit status is 1.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.redeliver
        salt-run safeupdate.redeliver 'G@os:Debian' tgt_type=compound

    target
        The minions. Defaults to ``*``.

    tgt_type
        The type of ``target``. Defaults to ``glob``.

    timeout
        Seconds that minions have to answer. Defaults to ``30``.

    :raises CommandExecutionError: if ``timeout`` is not a number of seconds above 0.
    :raises CommandExecutionError: if the engine is not configured or does not run, or this
        master cannot publish jobs again; the message says why.
    """
    timeout = redelivery.seconds("timeout", timeout)
    minions = targets.targeted(__opts__, target, tgt_type)
    report = redelivery.redeliver(Calls(Account(path_of(__opts__))), minions, timeout)
    if report.get("failed"):
        __context__["retcode"] = 1
        report["retcode"] = 1
    return report


@errors.for_runner
def avail(source, keyring=""):
    """
    List the builds of Salt that this master has for its minions, by series, the newest first.

    Minions make slots of builds. ``versions`` has each series; its entries have ``version``,
    ``build``, ``kind``, ``machine``, ``python``, ``size`` (bytes) and ``signed_by``. ``problems``
    has the manifests that are refused, with the reason. The files of the builds are not read.
    Only a minion knows which versions its packages offer, and which builds fit it:
    ``salt '*' safeupdate.avail``.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.avail salt://builds

    source
        A ``salt://`` path, or the absolute path of a directory of this master. Such a path and
        ``keyring`` are for ``salt-run`` in a shell of the master only.

    keyring
        A file with keys of GnuPG by which builds have to be signed, as in
        ``safeupdate:slots_keyring`` of minions. Defaults to none.

    :raises CommandExecutionError: if the source cannot be read.

    .. versionadded:: 0.1.0
    """
    local = "" if str(source).startswith("salt://") else source
    people.refuse_elsewhere(__opts__, source=local, keyring=keyring)
    return builds.avail(__opts__, source, keyring)


@errors.for_runner
def setup(window=300, config_file=None, test=False):
    """
    Set this master up, and show what was changed.

    Afterwards, jobs that minions have missed are published again, minions may ask for the version
    of the master, and the SLS of this extension are in the file roots. The master's own settings
    stay: the engines and permissions of all its configuration files, and an SLS of the same name
    that somebody else has written. If that is not possible, nothing is written, and the error has
    the lines to add by hand. Run it again after each upgrade of the extension.

    Returns ``changes`` by path, and in ``comment`` what to do next, such as to restart the master.
    ``result`` is None if ``test`` has found something to change, and False if nothing of it works
    with the master's present configuration, such as with ``open_mode``.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.setup test=True
        salt-run safeupdate.setup

    window
        How far the master looks back for missed jobs, in seconds. Defaults to ``300``. If a file
        names the engine already, its options stay.

    config_file
        The file that gets the configuration. The master has to include it. Defaults to
        ``_safeupdate.conf`` in the directory that its ``default_include`` names.

    test
        Whether to show only what would be changed. Defaults to ``False``.

    :raises CommandExecutionError: if ``salt-run`` in a shell of the master does not call it.
    :raises CommandExecutionError: if the master cannot be set up without taking something away.
    :raises CommandExecutionError: if the user of the master may not write to a directory. Then
        nothing is written, and the error has the command that lets this user.
    """
    from saltext_safeupdate.admin.setup import master_set_up

    # It widens what minions may call, and writes to the file roots.
    people.refuse_elsewhere(__opts__, setup=True)
    return master_set_up.carry_out(
        __opts__,
        window=window,
        config_file=config_file,
        test=bool(test),
        unfit=engine_options.unfit(__opts__),
    )


@errors.for_runner
def plan(target=None, tgt_type="glob", zone="UTC", **settings):
    """
    Ask all targeted minions whether they can be updated, and make a plan. Nothing starts.

    At a terminal the plan is shown as text. With ``--out json``, or called by a program, this
    returns data: ``id`` is the plan that :py:func:`rollout` begins; ``waves`` has the minions that
    are updated, in their order; ``left_out`` has the others, and why; ``away`` has the minions that
    do not answer, and that are updated when they come back. ``unavailable`` is the number that may
    be away at once, ``failed`` the number that may fail. ``steps`` has the upgrade steps by minion,
    and ``expected`` the seconds that it takes according to earlier rollouts (0 without one).

    If all targeted minions run the version already, ``nothing_to_do`` says so; otherwise it is
    empty. Then there are no ``waves``, nothing is stored, and ``id`` is empty.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.plan '*' version="'3008.3'"
        salt-run safeupdate.plan 'G@os:Debian' tgt_type=compound version="'3008.3'" canaries=3
        salt-run safeupdate.plan back=20261122-061503-9f3a
        salt-run safeupdate.plan back="'3008.3'"
        salt-run safeupdate.plan version="'3008.3'" groups='[{"target": "web*"}, {"target": "db*"}]'

    target
        The minions, unless ``groups`` has them.

    tgt_type
        The type of ``target``: ``glob``, ``list``, ``grain``, ``nodegroup``, ``compound``,
        ``pcre``, ``pillar`` or ``ipcidr``. Defaults to ``glob``. A minion is left out if the master
        does not know whether the target matches it.

    version
        The version of Salt to update to; or a series, such as ``3008``, for its newest version:
        five minions, drawn by chance, are asked, and more than half have to agree. In quotes: as a
        number, 3007.10 is 3007.1, so a number with one decimal is refused.

    extension
        The version of this extension to update to before Salt.

    groups
        A list of targets that are updated one after the other. Each is a ``target`` with a
        ``tgt_type`` and a ``name``. A minion of two groups belongs to the first. Each may have its
        own ``canaries``, ``waves``, ``max_unavailable``, ``sample``, ``soak``, ``jitter``,
        ``windows``, ``closed``, ``minion_timeout``, ``silence_timeout``, ``pause_after``,
        ``gate_before`` and ``gate_after``; a setting that it does not have is the rollout's.
        ``max_unavailable`` of the rollout applies to all groups together.

    canaries
        How many minions of each group go first, on their own. They are drawn by chance when the
        plan is made. Defaults to ``2``, and to ``1`` if the target of the group matches fewer than
        10 minions.

    waves
        Sizes of the waves of a group; the last one repeats. Defaults to ``[10%, 30%, 100%]``, and
        to ``[100%]`` for such a small group.

    max_unavailable
        How many minions may be away at once, for whatever reason. Defaults to ``10%``, at least to
        1, and to 2 if that is at most a third.

    max_failed
        How many may fail or be rolled back before the rollout stops. It stops at once if a canary
        fails. Defaults to ``2%``.

    sample
        How many of a wave have to be done before the next one begins. Defaults to ``90%``.

    soak
        Seconds that a wave has to be done before the next one begins. Defaults to ``300``.

    jitter
        Seconds over which the starts of a wave are spread. Defaults to ``30``.

    stage
        Whether packages are downloaded before the wave of a minion begins. With ``all``, all
        minions download before the first wave: tonight, if the ``windows`` are on Saturday.
        Defaults to ``True``.

    stage_windows
        When minions may be told to download, in the form of ``windows``. Defaults to always.

    pause_after
        After which waves it pauses until :py:func:`resume`: ``canaries``, ``groups`` (the last wave
        of each) or ``waves`` (each). Defaults to none.

    gate_before, gate_after
        Names of gates that have to say yes before a wave begins, and before it is over. A gate is a
        runner function that ``safeupdate_gates`` in the configuration of the master names; see
        :doc:`how to </topics/howto/gates>`. Defaults to none.

    gate_timeout
        Seconds for which a gate may say no, or nothing, before the rollout stops. It is asked once
        a minute. Defaults to ``3600``.

    windows
        When updates may start, such as ``[mon-fri 22:00-04:00 Europe/Berlin]``,
        ``[first sun 02:00-06:00]`` or ``[2026-11-25 22:00-04:00]``. Defaults to always.

    closed
        Days on which no update starts, such as ``[2026-12-20 - 2027-01-06 Europe/Berlin]``.
        Defaults to none.

    at
        When the rollout begins, such as ``'2026-11-25 22:00 Europe/Berlin'`` (without a zone UTC),
        or in seconds since 1970. Defaults to ``0``: at once. For times of the day use ``windows``:
        YAML reads 20:00 as the number 1200, which is refused.

    minion_timeout
        Seconds that one minion may take. Defaults to ``3600``.

    silence_timeout
        Seconds without an answer after which a minion counts as away. Defaults to ``120``.

    late_timeout
        Seconds for which the rollout waits for minions that are away: at its end, and if so many
        are away that none can begin. The time outside of ``windows`` counts. Defaults to ``86400``.

    leave_late
        Whether the rollout ends without minions that are away or busy, like rollouts of a policy.
        Defaults to ``False``: it waits for them.

    exclude
        The IDs of minions that are left alone, as a list or with commas between them.

    allow_downgrade
        Whether the version may be older than the one that minions run. Defaults to ``False``.

    source
        Where minions take the version from: ``packages``, ``index`` (wheels from the index that pip
        is configured for), or a directory with builds, such as ``salt://builds``, of which each
        minion makes a slot. Each minion has to allow it (``safeupdate:slots_sources``). By default,
        a minion that runs from packages uses packages, and otherwise ``safeupdate:slots_source``.

    back
        A rollout to take back: each of its minions goes to the version that it ran before. It has
        the groups, waves and limits of that rollout, unless others are given, and no soak. With a
        ``target`` only a part of the minions goes back. There is no ``version`` then. Or the
        version to take back, in quotes, whichever rollouts have installed it. Then each group has
        the limits of its newest rollout, and minions that have another version since then keep it.

    keep
        Whether the version that is taken back is kept from all other rollouts, until
        :py:func:`allow`. Defaults to ``True`` if all of a rollout is taken back, and to ``False``
        for a part of it.

    zone
        The time zone of shown times: ``UTC``, ``local`` for the zone of this master, or a name
        such as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if no minion matches, if none that needs the update can be
        updated, if a version is in quarantine, or if a setting is not valid. Then nothing is
        stored.
    :raises CommandExecutionError: if the engine ``safeupdate_redeliver`` of this master is not
        configured or does not run, or the cache of the master cannot be used.
    """
    progress.zone(zone)
    store = Store(__opts__)
    settings = salt.utils.args.clean_kwargs(**settings)
    wanted = planning.requested(store, target, tgt_type, settings)
    found = planning.make(__opts__, wanted, store=store)
    if progress.for_person(__opts__):
        return progress.plan_text(found, zone)
    return planning.as_data(found, zone)


@errors.for_runner
def rollout(target=None, tgt_type="glob", plan=None, background=False, max_age=86400, **settings):
    """
    Update minions in waves: by a stored plan, or by a plan that is made now.

    The engine of the master does it. This shows the progress until it ends or stops; Ctrl-C only
    ends the display. With ``background``, it returns as soon as the rollout has begun.

    Returns the same as :py:func:`status`. ``changed`` lists the changes since the plan was made.
    The exit status is 0 if all minions are done, 1 if some are not or were left out because of a
    problem, 2 if the rollout has stopped or is paused, and 3 if it is under way. With
    ``background`` it is 0 if the rollout has begun.

    If all targeted minions run the version already, nothing is begun or stored, and the exit
    status is 0: ``mode`` is ``finished``, ``rollout`` is empty, and ``why`` says so.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.rollout plan=20261122-061503-9f3a
        salt-run safeupdate.rollout '*' version="'3008.3'" background=True
        salt-run safeupdate.rollout back=20261122-061503-9f3a

    plan
        The ``id`` that :py:func:`plan` has returned. A plan runs once, and unchanged.

    background
        Whether to return at once. Defaults to ``False``.

    max_age
        Seconds after which a plan is too old to be run. Defaults to ``86400``.

    target, tgt_type and all others
        As for :py:func:`plan`, if there is no plan.

    :raises CommandExecutionError: as for :py:func:`plan`; and if there is no such plan, it has been
        run, it is too old, or its target matches other minions now.
    :raises CommandExecutionError: as for :py:func:`plan`; and if one of the minions is in another
        rollout that is not over. Then nothing is started.
    """
    settings = salt.utils.args.clean_kwargs(**settings)
    more = {"plan": plan, "max_age": max_age, "background": bool(background), "by": _by()}
    found = orders.run(__opts__, target, tgt_type, settings, **more)
    retcode = 0 if background else found["exit_status"]
    # This tells an orchestration that the rollout has failed.
    __context__["retcode"] = retcode
    if progress.for_person(__opts__):
        # The display has shown the rest.
        found = {key: found[key] for key in ("rollout", "mode", "why", "counts", "changed")}
    return {**found, "retcode": retcode}


@errors.for_runner
def status(rollout=None, rows=False, zone="UTC"):
    """
    Return the status of a rollout, or of all of them.

    It is the same from every shell, and changes nothing. At a terminal it is shown as text; with
    ``--out json``, or called by a program, it returns data. ``mode`` is ``running``, ``paused``,
    ``stopped`` (see ``why``: too many have failed, the version is in quarantine, or no minion can
    begin), ``aborting``, ``aborted`` or ``finished``. ``by`` is the person who began it, and
    ``history`` says who has paused, resumed or aborted it. ``looked_after`` is ``False`` if no
    engine has driven it for two minutes, or if the engine of this master does nothing:
    ``stood_down`` says why.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.status
        salt-run safeupdate.status 20261122-061503-9f3a rows=True
        salt-run safeupdate.status 20261122-061503-9f3a zone=Europe/Berlin

    rollout
        The rollout. Defaults to all, with less data about each.

    rows
        Whether to return a row for each minion. Defaults to ``False``.

    zone
        The time zone of shown times: ``UTC``, ``local`` for the zone of this master, or a name
        such as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if there is no such rollout, or no such time zone.
    :raises CommandExecutionError: if the cache of the master cannot be used.
    """
    person = progress.for_person(__opts__) and not rows
    if rollout is None:
        listed = orders.listed(__opts__)
        return progress.listed_text(listed, zone) if person else listed
    found = orders.shown(Store(__opts__), rollout, rows=bool(rows), opts=__opts__, zone=zone)
    return progress.text(found, zone) if person else found


@errors.for_runner
def pause(rollout, why="by an administrator"):
    """
    Start no more minions until the rollout is resumed. Minions that have begun continue.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.pause 20261122-061503-9f3a why='the night'

    rollout
        The rollout.

    why
        The reason, which others see.

    :raises CommandExecutionError: if there is no such rollout, it is over or being aborted, or
        another master drives it.
    :raises CommandExecutionError: if the engine does not do it.
    """
    return _ordered(rollouts.PAUSE, rollout, why=str(why))


@errors.for_runner
def resume(rollout, take_over=False):
    """
    Continue a rollout that is paused or has stopped, and accept minions that failed or are away.

    Minions that have failed or are away do not count against ``max_unavailable`` any more. A
    minion that was away counts again from its next answer on. If the rollout has stopped, it waits
    for busy minions again.

    If the rollout is running, no wave waits any more for a host that is to be rebooted. If it was
    paused or had stopped, it waits for such a host as before; a second ``resume`` ends that.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.resume 20261122-061503-9f3a

    rollout
        The rollout.

    take_over
        Whether this master shall drive the rollout from now on, because the master that drove it
        is gone for good. Defaults to ``False``.

    :raises CommandExecutionError: as for :py:func:`pause`.
    """
    return _ordered(rollouts.RESUME, rollout, take_over=bool(take_over))


@errors.for_runner
def retry(rollout, minions=None):
    """
    Have minions that have failed try again, in the wave that is under way.

    A minion that has timed out may still be updating. It counts as away until it says that it is
    not, and is not asked for a second update. If the first update ends, its result counts.

    A minion that was rolled back keeps the version in quarantine, and refuses it. Once the cause is
    gone, allow the version there first, with the minion's own ``safeupdate.unquarantine``.

    CLI Example:

    .. code-block:: bash

        salt web1 safeupdate.unquarantine "'3008.3'"
        salt-run safeupdate.retry 20261122-061503-9f3a
        salt-run safeupdate.retry 20261122-061503-9f3a minions=[web1,web2]

    rollout
        The rollout.

    minions
        A list of minions. Defaults to all that have failed.

    :raises CommandExecutionError: as for :py:func:`pause`, and if none of them has failed.
    """
    listed = minions if isinstance(minions, list) else [minions] if minions else []
    return _ordered(rollouts.RETRY, rollout, minions=[str(minion) for minion in listed])


@errors.for_runner
def abort(rollout, why="by an administrator"):
    """
    End a rollout: start no more minions, and cancel updates that have not begun to install.

    Updates that have begun to install come to their end. Then the rollout is over. A minion that
    has timed out drops its update, too, if it has not begun to install and can be reached.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.abort 20261122-061503-9f3a why='the wrong version'

    rollout
        The rollout.

    why
        The reason, which others see.

    :raises CommandExecutionError: as for :py:func:`pause`.
    """
    return _ordered(rollouts.ABORT, rollout, why=str(why))


@errors.for_runner
def policy(apply=False, zone="UTC"):
    """
    Show the policy of this master, and its next step; or take that step.

    The policy is a file. It says which version each group of minions is to run, when it may be
    updated, and within which limits; see :doc:`its page </topics/howto/policy>`. With ``apply``,
    the next rollout begins, in the background: one at a time, and only if no other one is under
    way. Let the schedule of the master apply it, for example every ten minutes.

    At a terminal it is shown as text; with ``--out json``, or called by a program, it returns data:
    ``groups`` with a row for each (``group``, ``goal``, ``version``, ``minions``, ``there``: the
    number that run it; ``bring``: the minions that a rollout would update; ``left``: those that
    are left out, and why; ``waits``: why no rollout of the group may begin now; ``unknown``: names
    in ``exclude`` that no minion with an accepted key has), ``next`` (the group whose rollout comes
    next, or has begun) and ``begun`` (the name of the rollout).

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.policy
        salt-run safeupdate.policy apply=True

    apply
        Whether to begin the rollout that comes next. Defaults to ``False``: nothing starts.

    zone
        The time zone of shown times: ``UTC``, ``local`` for the zone of this master, or a name
        such as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if there is no policy, others could write to it, it has a
        mistake, or another process is applying it. Then nothing is started.
    :raises CommandExecutionError: if the engine ``safeupdate_redeliver`` of this master is not
        configured or does not run, or the cache of the master cannot be used.
    """
    progress.zone(zone)
    found = policies.step(__opts__, apply=bool(apply), by=_by())
    if progress.for_person(__opts__):
        return progress.policy_text(found, zone)
    return progress.beside(found, ("at",), zone)


@errors.for_runner
def drain(target, tgt_type="glob", timeout=86400, reason="", zone="UTC"):
    """
    Make rollouts and policies leave minions alone, because people work on their hosts.

    No update starts on these minions. If one is away meanwhile, it does not count against
    ``max_unavailable``, and a failure there stops no rollout. An update that has begun continues; a
    request that has not begun is taken back. In a rollout that is under way they are *held*, and
    continue in their own wave afterwards. A rollout does not wait for them at its end. A
    :py:func:`policy` updates them afterwards.

    The minions do not learn of it. If they shall take no jobs either, call ``safeupdate.drain``
    there.

    Returns ``minions``, ``until`` (seconds since 1970), ``reason``, and ``times`` with ``until`` by
    ISO 8601.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.drain 'rack7-*' timeout=14400 reason='new switches'

    target, tgt_type
        The minions. Minions that only match later are not drained.

    timeout
        Seconds after which it ends by itself. Defaults to ``86400``. A second call sets a new end.

    reason
        The reason, which others see.

    zone
        The time zone of shown times: ``UTC``, ``local`` for the zone of this master, or a name
        such as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if no minion matches, a list names one that is not there, or
        ``timeout`` is not a number above 0. Then nothing is changed.
    :raises CommandExecutionError: if the cache of the master cannot be used.
    """
    progress.zone(zone)
    minions = stocktaking.all_expected(__opts__, target, tgt_type)
    seconds = redelivery.seconds("timeout", timeout)
    now = time.time()
    found = draining.drain(Store(__opts__), minions, seconds, str(reason), _by(), now)
    return progress.beside(found, ("until",), zone)


@errors.for_runner
def undrain(target, tgt_type="glob"):
    """
    Let rollouts and policies update drained minions again; return them.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.undrain 'rack7-*'

    target, tgt_type
        The minions.

    :raises CommandExecutionError: if no minion matches, a list names one that is not there, or the
        cache of the master cannot be used.
    :raises CommandExecutionError: if the master knows too little about a drained minion to say
        whether it matches. Then nothing is changed.
    """
    minions = stocktaking.all_expected(__opts__, target, tgt_type)
    unsure = stocktaking.unsure(__opts__, target, tgt_type)
    return draining.undrain(Store(__opts__), minions, time.time(), unsure)


@errors.for_runner
def allow(version, everywhere=False):
    """
    Let rollouts install a version again that two canaries rolled back, or that was taken back.

    Minions that went back from it, in a rollout or by themselves, keep it in quarantine and refuse
    it, unless it is allowed ``everywhere``. Then this returns ``lifted`` (whether rollouts were
    kept from it), ``minions`` (the versions that were in quarantine, by minion), ``failed`` (the
    minions on which it could not be lifted, and why) and ``silent`` (the minions that did not
    answer). The exit status is 1 if one has failed or is silent.

    An event ``salt/run/safeupdate/allowed`` (``version``, ``by``) says who has allowed it. The
    history of each rollout that it had stopped says so, too, once that is resumed.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.allow "'3008.3'"
        salt-run safeupdate.allow "'3008.3'" everywhere=True

    version
        The version as it is in quarantine: the message that refuses it names it.

    everywhere
        Whether minions allow it again as well. Defaults to ``False``.

    :raises CommandExecutionError: if it is not in quarantine, unless it is allowed ``everywhere``.
        The message lists the versions in quarantine.
    :raises CommandExecutionError: if the cache of the master cannot be used; and for
        ``everywhere``, if its engine does not run.
    """
    store, wanted = Store(__opts__), errors.version_text("version", version)
    if not everywhere:
        return allowing.allow(__opts__, store, wanted, by=_by())
    found = allowing.allow_everywhere(__opts__, store, wanted, by=_by())
    __context__["retcode"] = found["retcode"]
    return found


def _ordered(what, rollout, **given):
    return orders.order(__opts__, what, {"rollout": str(rollout), "by": _by(), **given})


def _by():
    return people.told(errors.caller(), __opts__)


@errors.for_runner
def master_version():
    """
    Return the version of this master.

    Minions ask for it before they update, so that none becomes newer than its master. They may
    call it if ``peer_run`` of the master lists this function; :py:func:`setup` sets that.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.master_version
    """
    return str(salt.version.__version__)


@errors.for_runner
def report(rollout, path="", public=False, force=False, zone="UTC"):
    """
    Write a rollout as one HTML page, and return the path of the file; or return the page.

    The page shows waves, minions, durations and reasons of failure. It has search and filters,
    and needs no network and no other file. It can be written while the rollout is under way.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.report 20261122-061503-9f3a /var/tmp/rollout.html

    rollout
        The name of the rollout.

    path
        The file. An existing report is replaced. The user of the master has to be allowed to write
        to its directory, as in ``/var/tmp``. Without it, the page is returned. ``path``, ``public``
        and ``force`` are for ``salt-run`` in a shell of the master only.

    public
        Let all users of the host read the file. Defaults to ``False``: only the user that
        runs this may read it.

    force
        Replace the file even if it is no report. Defaults to ``False``.

    zone
        The time zone of times that the page shows: ``UTC``, ``local`` for this master's zone, or a
        name such as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if there is no such rollout, or the file cannot be written or is
        no report.
    :raises CommandExecutionError: if the rollout cannot be read.
    """
    progress.zone(zone)
    people.refuse_elsewhere(__opts__, path=path, public=public, force=force)
    if not path:
        return reports.report_page(Store(__opts__), rollout, zone=zone)
    return reports.write_report(
        Store(__opts__), rollout, path, public=bool(public), force=bool(force), zone=zone
    )


@errors.for_runner
def metrics(path=""):
    """
    Return rollouts and running versions as metrics, or write them for a textfile collector.

    The text is valid as OpenMetrics and in the older format of Prometheus. It has the rollouts
    that are under way, and those that have ended within 7 days. It also has the number of minions
    by version, by phase and by kind of drift, and how long they have drifted. There are no names of
    minions. No minion is asked: the last answers count, such as to :py:func:`versions`.
    :doc:`Their page </ref/metrics>` lists all metrics.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.metrics
        salt-run safeupdate.metrics /var/lib/prometheus/node-exporter/safeupdate.prom

    path
        The file; its name ends in ``.prom``. It is replaced atomically, and all users may read it.
        Then the path is returned instead of the metrics. Without it nothing is written. Only for
        ``salt-run`` in a shell of the master, such as by cron.

    :raises CommandExecutionError: if the file cannot be written, or holds something else.
    :raises CommandExecutionError: if the cache of the master cannot be used.
    """
    people.refuse_elsewhere(__opts__, path=path)
    store = Store(__opts__)
    minions = sorted(targets.accepted(__opts__))
    if path:
        return reports.write_metrics(store, path, minions)
    return reports.metrics(store, minions)


@errors.for_runner
def versions(tgt="*", tgt_type="glob", timeout=30, details=False, ask=True, only=None, zone="UTC"):
    """
    Show which versions run on the minions whose keys are accepted.

    Minions are asked, and their answers are stored. Only the answer of a minion itself counts;
    events and the job cache do not. By default this shows the sums, and one line for each minion;
    ``--out=json`` shows everything that :doc:`the inventory </ref/inventory>` describes.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.versions
        salt-run safeupdate.versions 'G@os:Debian' tgt_type=compound --out=json
        salt-run safeupdate.versions ask=False
        salt-run safeupdate.versions only=outdated,silent
        salt-run safeupdate.versions only=3007 --out=json

    tgt
        The minions. Defaults to ``*``.

    tgt_type
        The type of ``tgt``: ``glob``, ``list``, ``grain``, ``nodegroup``, ``compound``,
        ``pcre``, ``pillar`` or ``ipcidr``. Defaults to ``glob``.

    timeout
        Seconds that minions have to answer. Defaults to ``30``.

    details
        Whether to show everything that is known about each minion. Defaults to ``False``.

    ask
        Whether to ask the minions. Otherwise their last answers are shown, and a minion is silent
        if that was more than a day ago. Defaults to ``True``.

    only
        Which minions have a line, as a list or with commas between them: a version of Salt or the
        beginning of one, such as ``3007``; ``outdated`` (older than its master), ``drift`` (not as
        :py:func:`check` wants it), ``busy`` (an update is under way), ``held``, ``silent``,
        ``plain`` (without this extension) or ``unsupported``. One of them is enough. The sums
        include all minions. Defaults to all.

    zone
        The time zone of ``times``: ``UTC``, ``local`` for this master's zone, or a name such as
        ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if no minion matches, a list names one that is not there, or a
        value is not valid. Then no minion is asked.
    :raises CommandExecutionError: if the engine ``safeupdate_redeliver`` of this master is not
        configured or does not run, or the cache of the master cannot be used.
    """
    progress.zone(zone)
    wanted = stocktaking.only(only)
    minions = stocktaking.all_expected(__opts__, tgt, tgt_type)
    timeout = redelivery.seconds("timeout", timeout)
    found = stocktaking.made(__opts__).versions(minions, timeout, asks=bool(ask), only=wanted)
    return _told({**stocktaking.dated(found, zone), "details": bool(details)})


@errors.for_runner
def check(
    tgt="*",
    tgt_type="glob",
    timeout=30,
    ask=True,
    repair=False,
    batch="10%",
    repair_timeout=3600,
    zone="UTC",
):
    """
    Show which minions are not as they should be, and how to repair each.

    The running version of such a minion differs from the installed one, or from the policy's
    (:py:func:`policy`), or is newer than its master's. Or the installed version differs from the
    one that was requested last. Or a version is in quarantine, or the set-up has a problem. Or the
    minion has never answered, is silent, lacks this extension, or gives senseless answers. Or a
    list names a minion without an accepted key. The exit status is 0 if all minions are as they
    should be, or were repaired, and 1 otherwise, also if the policy cannot be used.

    With ``repair``, minions are restarted, or updated to the version that was requested last.
    Some are repaired at a time; if one of them does not come back well, no more are begun.
    Minions of a rollout that is not over are left alone, and so are versions in quarantine.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.check
        salt-run safeupdate.check 'web*' repair=True batch=2

    tgt, tgt_type, timeout, ask, zone
        As for :py:func:`versions`.

    repair
        Whether to repair what can be repaired safely. Defaults to ``False``.

    batch
        How many minions are repaired at a time: a number or a percentage, at least 1. Defaults
        to ``10%``.

    repair_timeout
        Seconds that these have to come back. Defaults to ``3600``.

    :raises CommandExecutionError: as for :py:func:`versions`.
    :raises CommandExecutionError: as for :py:func:`versions`; and, with ``repair``, if it is not
        known which minions are in a rollout. Then nothing is changed.
    """
    progress.zone(zone)
    minions = stocktaking.expected(__opts__, tgt, tgt_type)
    meant, broken = policies.wanted(__opts__, minions)
    found = stocktaking.made(__opts__).check(
        minions,
        redelivery.seconds("timeout", timeout),
        asks=bool(ask),
        repair=bool(repair),
        batch=batch,
        repair_timeout=redelivery.seconds("repair_timeout", repair_timeout),
        unsure=stocktaking.unsure(__opts__, tgt, tgt_type) if repair else (),
        absent=stocktaking.missing(tgt, tgt_type, minions),
        meant=meant,
        broken=broken,
    )
    return _told(stocktaking.dated(found, zone))


@errors.for_runner
def forget(minion=None, deleted=False):
    """
    Drop the data about a minion, or about all whose keys are not accepted any more.

    Returns the minions whose data was dropped. A minion whose key is accepted still belongs to the
    fleet: it is unknown until it answers again.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.forget web1
        salt-run safeupdate.forget deleted=True

    minion
        The ID of a minion.

    deleted
        Whether to drop all data about minions without an accepted key. The master's engine does
        that once a day. Defaults to ``False``.

    :raises CommandExecutionError: if not exactly one of them is given, or nothing is known of the
        minion.
    :raises CommandExecutionError: if the cache of the master cannot be used, or there is no
        accepted key at all.
    """
    return stocktaking.forget(__opts__, minion, deleted)


@errors.for_runner
def onboard(target=None, tgt_type="glob", wheel="", sls="", test=False, zone="UTC", **settings):
    """
    Set up minions in waves: install this extension, and apply its state there.

    Each of them restarts once, so they are set up like in a rollout: canaries first, never more
    away at once than allowed, and it stops if too many fail. Minions that are set up already are
    left out, so it may be repeated at any time. The standard error shows the progress. After
    Ctrl-C, minions that have begun come to their end, and no other begins.

    A minion is done when it has restarted and says that it has the executor and the engine of this
    extension. The engine of this master asks for that, and the answer decides for that minion only.

    Returns ``waves``, ``done``, ``failed`` (and why), ``not_begun``, ``left_out`` (and why),
    ``remarks`` (the findings of ``safeupdate.check`` on minions that are done) and ``stopped``
    (why; otherwise empty). The exit status is 1 if it has stopped, or if a minion has failed or is
    left out because of a problem.

    Without a target and ``groups``, it does nothing and shows the newest run, also from another
    terminal. The fields are the same, with ``mode`` (``running``, ``finished``, ``stopped``, or
    ``interrupted`` if its process is gone), ``by`` (who began it), ``under_way`` (the minions at
    work, and their steps) and ``waits`` (the gate that says no). ``began``, ``looked`` (the time of
    the last change) and ``ended`` (0 if it has not ended) are seconds since 1970, and ``times`` has
    the same in ISO 8601. The exit status is 0.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.onboard 'web*' wheel=salt://saltext_safeupdate-0.1.0-py3-none-any.whl
        salt-run safeupdate.onboard '*' sls=base.safeupdate max_unavailable=5 test=True
        salt-run safeupdate.onboard zone=local

    target, tgt_type
        The minions, if ``groups`` does not name them.

    wheel
        The ``salt://`` path of the wheel, for minions that do not have the extension:
        ``pip.install`` installs it there.

    sls
        An SLS that installs it for the same minions instead, for example as a package of the
        distribution. Without either, they are left out. ``wheel`` and ``sls`` are for ``salt-run``
        in a shell of the master only: they run as root on minions.

    test
        Whether to only show the minions that would be set up. Defaults to ``False``.

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this master, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    groups, canaries, waves, max_unavailable, max_failed, soak, windows, closed, exclude
        As for :py:func:`plan`.

    gate_before, gate_after, gate_timeout, minion_timeout
        As for :py:func:`plan`.

    :raises CommandExecutionError: if no minion matches or is left to be set up, a setting is not
        valid, or another process is doing this. Then nothing is begun.
    :raises CommandExecutionError: if the cache of the master cannot be used.
    :raises CommandExecutionError: if the engine ``safeupdate_redeliver`` of this master is not
        configured or does not run.
    """
    progress.zone(zone)
    settings = salt.utils.args.clean_kwargs(**settings)
    if not (target or settings or wheel or sls or test):
        return onboarding.shown(__opts__, zone)
    people.refuse_elsewhere(__opts__, wheel=wheel, sls=sls)
    out = progress.watched(__opts__)
    how = {"wheel": str(wheel), "sls": str(sls), "test": bool(test), "by": _by()}
    found = onboarding.run(__opts__, target, tgt_type, settings, **how, out=out)
    __context__["retcode"] = found["retcode"]
    return found


@errors.for_runner
def update_master(version, minion=None, when="idle", allow_downgrade=False, test=False):
    """
    Update this master, with its syndic and its API, by the minion of its host.

    They run from the same packages, so it is one update. The minion stops them before packages
    change, starts them before itself, and rolls everything back if one of them does not work. See
    the page "Update the master".

    Returns the answer of the minion's ``safeupdate.update`` as soon as it has accepted the update,
    and ``minion``. This master is away during the update, so use ``salt-call --local
    safeupdate.status`` on this host. Afterwards the engine continues rollouts.

    CLI Example:

    .. code-block:: bash

        salt-run safeupdate.update_master "'3008.3'" test=True
        salt-run safeupdate.update_master "'3008.3'"

    version
        The version of Salt. In quotes: as a number, 3007.10 is 3007.1, so a number with one decimal
        is refused.

    minion
        The ID of the minion. Defaults to the one of this host that runs from the packages of this
        master; if the user of the master may not see it, to the ID that the configuration of the
        minion gives.

    when
        ``idle`` to wait for a moment in which no job of the minion runs, or ``now`` to hold its new
        jobs until then. Defaults to ``idle``.

    allow_downgrade
        Whether the version may be older than the running one. Defaults to ``False``. Minions must
        not be newer than their master: take them back first.

    test
        Whether to return only the plan of the minion. Defaults to ``False``.

    :raises CommandExecutionError: if no minion of this host runs from the packages of this master,
        several do and none is named, or its key is not accepted here. Then nothing is changed.
    :raises CommandExecutionError: if something prevents the update, or the minion refuses it.
    :raises CommandExecutionError: if the minion does not answer, or the engine
        ``safeupdate_redeliver`` of this master is not configured or does not run.
    """
    return own_update.update(
        __opts__,
        errors.version_text("version", version),
        minion,
        when=str(when),
        allow_downgrade=bool(allow_downgrade),
        test=bool(test),
    )


def _told(found):
    """Return *found*, for a person with our outputter: an orchestration would take it as failed."""
    __context__["retcode"] = found.get("retcode", 0)
    person = progress.for_person(__opts__)
    return {"outputter": "safeupdate", "data": found} if person else found
