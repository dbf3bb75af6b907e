"""
Update the minion with Salt itself, and lose nothing
====================================================

.. versionadded:: 0.1.0

Look at and steer the updates of this minion. Updating needs no function of this module: a
state that changes the minion's own packages is deferred to the end of its run, and the
minion restarts as soon as every job has ended and its return has been delivered.
:py:func:`update` does more: it checks and downloads everything first. Either way the updated
minion is watched, and rolled back if it does not prove healthy.

Inside a transaction of a transactional system, :py:func:`restart` and :py:func:`update` are
asked of the running minion when the transaction is closed. All other functions fail there.
"""

import sys

import salt.defaults.exitcodes

from saltext_safeupdate import hooks
from saltext_safeupdate.admin import errors
from saltext_safeupdate.admin.status import check as checks
from saltext_safeupdate.admin.status import drains
from saltext_safeupdate.admin.status import jobs as job_actions
from saltext_safeupdate.admin.status import status as statuses
from saltext_safeupdate.admin.status import wait as waiting
from saltext_safeupdate.admin.updates import (
    available,
    inside,
    rollout_requests,
    slots,
    steering,
    updating,
)
from saltext_safeupdate.core.settings import is_proxy
from saltext_safeupdate.this_host import Host

__virtualname__ = "safeupdate"


def __virtual__():
    if is_proxy(__opts__):
        return False, (
            "unsupported: a proxy minion has no packages of its own; update the minion of its host"
        )
    if not sys.platform.startswith("linux"):
        return False, f"unsupported: only packages of Linux are updated, and this is {sys.platform}"
    return __virtualname__


def status():
    """
    Return the newest update of this minion, and the versions that run and are installed.

    ``phase``, ``reason``, ``from`` and ``to`` are those of the newest update or deferred
    restart; ``phase`` is ``idle`` if there never was one. ``running`` and ``installed`` are the
    versions now; those in ``extension`` are this extension's. ``draining`` tells whether new jobs
    are held; it is None if the locks do not work, and ``problem`` says why. ``drained`` says until
    when, if :py:func:`drain` is in effect. ``restart`` tells what becomes of jobs in the next
    restart by others: ``handover``, or ``wait:`` and why it waits for them; ``waited`` says why
    the last one has, if it was to hand over and could not. ``waits_for`` names the
    jobs that an update waits for, as "JID function". ``undelivered`` tells how many returns their
    master does not have yet. ``servers`` names the services of a master on this host that are
    updated with the minion; it is missing if there are none.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.status

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return statuses.status(Host(__opts__))


def history(limit=20):
    """
    Return the newest updates with all their phases, newest first.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.history limit=5

    limit
        How many updates, at most. Defaults to ``20``.

    :raises CommandExecutionError: if ``limit`` is not a whole number above 0, or the database
        cannot be read.
    """
    with errors.as_salts():
        return statuses.history(Host(__opts__), limit)


def restart(reason="safeupdate.restart", jitter=0):
    """
    Restart the minion as soon as every job has ended and its return is delivered.

    Returns at once; the result appears in :py:func:`status`. If a restart is to come anyway,
    there is no second one.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.restart

    reason
        A text for the history.

    jitter
        The restart waits a random time at first, up to so many seconds. Defaults to ``0``.

    :raises CommandExecutionError: if an update is under way that has not installed yet.
    """
    with errors.as_salts():
        asked = inside.asked("safeupdate.restart", reason=str(reason))
        return asked or steering.restart(Host(__opts__), str(reason), jitter)


def plan(version=None, allow_downgrade=False, refresh=True, back=False, source=None):
    """
    Return what an update would do, and what speaks against it. Nothing is installed.

    ``changes`` has the versions before and after, ``jobs`` the jobs that the update would wait
    for, and ``steps`` the upgrade steps that would run. ``staged`` tells whether the update
    needs no network any more, ``reboot`` whether a reboot of the host activates the version, as
    on a transactional system. ``findings`` has every problem with a ``code``, a ``problem``, a
    ``fix`` and whether it is ``blocking``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.plan "'3008.3'"

    version
        The version, whole or without what packaging adds (``3008.3`` means ``3008.3-1`` too).
        ``3008`` is the newest of that series. Defaults to the newest on offer. In
        quotes: as a number, 3007.10 is 3007.1, so a number of one decimal is refused.

    allow_downgrade
        Whether an older version than the installed one is meant. Defaults to ``False``.

    refresh
        Whether the index of the packages is refreshed first, as an update does it. Defaults to
        ``True``.

    back
        Whether it is about :py:func:`rollback`: then the packages that are kept count, if they
        are of this version, and no repository has to offer it. Defaults to ``False``.

    source
        Where it comes from: ``packages``, or a directory with builds, as for :py:func:`avail`.
        With a build, the minion runs from a slot of its own, and packages stay as they are.
        Defaults to packages; to ``safeupdate:slots_source`` if the minion runs from a slot, or no
        package owns its Salt.

    :raises CommandExecutionError: if Salt was not installed from packages, and no source of builds
        is known.
    """
    with errors.as_salts():
        return updating.plan(
            Host(__opts__),
            __salt__,
            version,
            allow_downgrade=bool(allow_downgrade),
            refresh=bool(refresh),
            back=bool(back),
            source=source,
        )


def avail(source=None, refresh=True):
    """
    List the versions of Salt that are on offer to this minion, by series, the newest first.

    ``versions`` has each series. Its entries have a ``version`` and a ``source``: ``packages`` is
    the package manager, and then ``installed`` tells whether it is the one that is installed. A
    version is listed if each of the minion's own packages is on offer in it, or installed. Any
    other source is a directory with builds, and then ``build``, ``kind``, ``machine``, ``size``
    (bytes) and ``signed_by`` tell what its manifest says, and ``problem`` why it does not fit this
    host. ``problems`` has the manifests that are refused, with the reason. Nothing is downloaded
    but the index of the packages, manifests and signatures. :py:func:`update` takes each
    ``source``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.avail
        salt 'web1' safeupdate.avail source=salt://builds

    source
        The directory with builds: an absolute path, or a ``salt://`` path. Defaults to
        ``safeupdate:slots_source``.

    refresh
        Whether the index of the packages is refreshed first. Defaults to ``True``.

    :raises CommandExecutionError: if the source cannot be looked at, or the package manager fails.
    """
    with errors.as_salts():
        return available.avail(Host(__opts__), __salt__, source, refresh=bool(refresh))


def stage(version=None, source=None):
    """
    Download and verify an update, so that it needs no network later. Nothing is installed.

    What is staged already is not downloaded again, unless it was altered since: then the result
    has ``staged_again``, which says how.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.stage "'3008.3'"

    version
        As for :py:func:`plan`.

    source
        As for :py:func:`plan`.

    :raises CommandExecutionError: if the version cannot be downloaded, if a signature or
        checksum is wrong, or if an update is under way.
    """
    with errors.as_salts():
        return updating.stage(Host(__opts__), __salt__, version, source)


def update(version=None, when="idle", allow_downgrade=False, refresh=True, source=None):
    """
    Update the minion: check, download, secure the way back, install, restart and watch.

    Returns at once; the result appears in :py:func:`status`. The same request again is the
    same update. Another request takes its place as long as nothing is installed; after that it
    is refused. The updated minion has to prove healthy. If it does not, it is rolled back, and
    its version goes into quarantine.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.update "'3008.3'"
        salt 'web1' safeupdate.update 3008 source=salt://builds

    version
        As for :py:func:`plan`.

    when
        ``idle``: wait for a moment in which no job runs, however long that takes. ``now``: hold
        new jobs, and wait for the others up to ``safeupdate:jobs_timeout`` seconds. Defaults
        to ``idle``.

    allow_downgrade
        Whether it may be an older version than the installed one. Defaults to ``False``.

    refresh
        Whether the index of the packages is refreshed first. Defaults to ``True``.

    source
        As for :py:func:`plan`. A build is fetched, verified and unpacked by this job; the update
        needs no network afterwards.

    :raises CommandExecutionError: if the update cannot be made. The error gives the reason;
        nothing was changed.
    """
    wanted = {
        "when": when,
        "allow_downgrade": bool(allow_downgrade),
        "refresh": bool(refresh),
        **({} if source is None else {"source": source}),
    }
    with errors.as_salts():
        asked = inside.asked("safeupdate.update", version=version, **wanted)
        return asked or updating.update(Host(__opts__), __salt__, version, **wanted)


def wait(update=None, timeout=3600):
    """
    Wait for the end of an update or a deferred restart, and return what became of it.

    The return code is ``0`` only if the update was ``committed``: so the exit status of
    ``salt-call`` tells, and so does that of ``salt`` if it waits long enough. No update waits
    for this job. A master gets its return from the minion that runs in the end.

    CLI Example:

    .. code-block:: bash

        salt-call safeupdate.update "'3008.3'" && salt-call safeupdate.wait
        salt --timeout=60 'web1' safeupdate.wait timeout=900

    update
        The ID of an update, as :py:func:`update` and :py:func:`history` give it. Defaults to
        the newest update; a newer one that comes meanwhile takes its place.

    timeout
        Seconds to wait. Then the update is returned as it is. Defaults to ``3600``.

    :raises CommandExecutionError: if there is no such update, or if the update would wait for
        the job that calls this, such as a state run.
    """
    with errors.as_salts():
        found = waiting.wait(Host(__opts__), update, timeout)
    if found["phase"] != "committed":
        __context__["retcode"] = salt.defaults.exitcodes.EX_GENERIC
    return found


def rollback(to=None):
    """
    Go back to the previous revision: the packages that were secured, or a slot. Needs no network.

    This is an update like any other: it waits for jobs, and the minion is watched. The version
    that is left goes into quarantine, so that no state run installs it again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.rollback

    to
        A version. Defaults to the one that :py:func:`revisions` calls ``previous``. Another
        version is downloaded, unless the minion runs from a slot. Then it has to be that of a slot
        that is there; ``without_slot`` is what the unit of the minion starts by itself, such as the
        package.

    :raises CommandExecutionError: if this minion has no previous revision, or an update is
        under way.
    """
    with errors.as_salts():
        return updating.rollback(Host(__opts__), to)


def revisions():
    """
    Return the revisions that this minion knows.

    ``active`` is installed, ``previous`` is what :py:func:`rollback` goes back to, ``staged``
    is downloaded and verified, and ``skipped`` was rolled back, with the reason. If there are
    slots on this host, ``slots`` has each with its ``size`` in bytes, when it was ``staged`` (epoch
    seconds), and whether this minion has it as its ``active`` or ``previous`` one;
    ``without_slot`` is what the unit of the minion starts by itself.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.revisions

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return updating.revisions(Host(__opts__))


def forget_slot(slot):
    """
    Remove a slot, and make room on the disk.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.forget_slot salt-3008.3-onedir-x86_64-1f0c9a77b2d4e655

    slot
        Its name, as listed by :py:func:`revisions`.

    :raises CommandExecutionError: if a minion of this host runs from it or goes back to it, or if
        it is not there.

    .. versionadded:: 0.1.0
    """
    with errors.as_salts():
        return slots.forget(Host(__opts__), slot)


def unquarantine(version):
    """
    Allow a version again that was rolled back on this minion.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.unquarantine "'3008.3'"

    version
        As for :py:func:`plan`.

    :raises CommandExecutionError: if it is not in quarantine.
    """
    with errors.as_salts():
        return updating.unquarantine(Host(__opts__), version)


def cancel():
    """
    Call off an update or a restart that waits, and let new jobs start again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.cancel

    :raises CommandExecutionError: if nothing waits, or the point of no return has passed.
    """
    with errors.as_salts():
        return steering.cancel(Host(__opts__))


def drain(timeout=3600, reason=""):
    """
    Take no new jobs for a while, and serve those that run.

    New jobs are held and run afterwards under their JIDs. It ends with :py:func:`undrain`, or by
    itself after ``timeout`` seconds. A restart of the minion does not end it, a reboot of the
    host does. An update that is under way goes on, and its new minion drains, too. Again, it sets
    the time anew. Functions that look at jobs or steer updates are answered meanwhile.

    ``running`` and ``held`` are jobs as "JID function"; ``drained`` has ``until`` (epoch seconds)
    and the ``reason``.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.drain timeout=600 reason='disk is replaced'

    timeout
        Seconds after which it ends by itself, at most 86400. Defaults to ``3600``.

    reason
        A text for :py:func:`status`. Defaults to none.

    :raises CommandExecutionError: if ``timeout`` is not valid, or the directory of the locks
        cannot be written.
    """
    with errors.as_salts():
        return drains.drain(Host(__opts__), timeout, reason)


def undrain():
    """
    Take new jobs again; those that were held begin now.

    ``was_drained`` tells whether :py:func:`drain` was in effect. ``draining`` may still be true:
    an update holds jobs as well.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.undrain

    :raises CommandExecutionError: if the directory of the locks cannot be written.
    """
    with errors.as_salts():
        return drains.undrain(Host(__opts__))


def jobs():
    """
    List the jobs that run, the jobs that are held, and the open jobs of the ledger.

    ``running`` and ``held`` are "JID function"; ``undelivered`` are returns that their master
    does not have yet; ``recorded`` is every job that is not delivered, with its ``state``
    (``held``, ``accepted``, ``running``, ``finished``), ``attempts`` (how often it was
    started), ``sends`` (how often its return was sent), ``accepted`` (epoch seconds) and
    ``master``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.jobs

    :raises CommandExecutionError: if the database cannot be read.
    """
    with errors.as_salts():
        return job_actions.listed(Host(__opts__))


def resume(jid):
    """
    Start an interrupted or held job again now, or send its return again now.

    States of a state run that have finished are not run again.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.resume 20260101120000000000

    jid
        The job ID, as listed by :py:func:`jobs`.

    :raises CommandExecutionError: if the job runs, or is not open.
    """
    with errors.as_salts():
        return job_actions.resume(Host(__opts__), jid)


def forget(jid):
    """
    Remove a job from the ledger and from the queue: it is neither run nor returned.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.forget 20260101120000000000

    jid
        The job ID, as listed by :py:func:`jobs`.

    :raises CommandExecutionError: if the job runs, or is not open.
    """
    with errors.as_salts():
        return job_actions.forget(Host(__opts__), jid)


def accepted(jids, aims=None):
    """
    Return which of these jobs this minion has accepted, with their states, and which are for it.

    The master asks this before it publishes a job again. A job that is not in the answer has
    never arrived, or its function is one that the ledger does not record. A job is ``unknown``
    if it is older than the ledger, or if it may have run while the ledger could not be written or
    the minion ran without this extension.

    CLI Example:

    .. code-block:: bash

        salt 'web*' safeupdate.accepted '["20260101120000000000"]'

    jids
        List of job IDs.

    aims
        List of targets. Each has ``tgt``, ``tgt_type`` and ``delimiter`` as they were published,
        and ``jobs``: the job ID of each publication, by its number. If the minion does not have
        the job, the answer says under ``#`` and that number whether Salt's own matcher on this
        minion says that it is ``meant``, ``not meant`` or ``undecided``. Defaults to none.

    :raises CommandExecutionError: if ``jids`` is not a list of job IDs, ``aims`` is not such a
        list, or the database cannot be read.
    """
    with errors.as_salts():
        blind = not hooks.minion_has_them(__opts__)
        return job_actions.accepted(Host(__opts__), jids, aims, blind=blind)


def check():
    """
    Return what is not set up right, and how to fix it. The list is empty if all is well.

    Each entry has a ``code``, a ``problem`` and a ``fix``. A last update that failed or was
    rolled back is an entry, too. Of the master, a minion sees only whether it tells its version.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.check
    """
    with errors.as_salts():
        return checks.check(Host(__opts__), __salt__)


def report(question=0):
    """
    Return where this minion is, for a rollout, and what runs on it. Nothing is changed.

    ``number`` is that of the newest request that was taken (``0`` for none), ``phase`` and
    ``reason`` are those of its update (``idle`` if it needs none), ``waits_for`` tells how many
    jobs that waits for, and ``phases`` has the seconds of each phase that is over. ``refused`` says
    why a request was not taken, and ``again`` whether that may be over soon. ``staged`` is
    ``done`` or ``failed`` after :py:func:`prefetch`. ``running`` is the version of Salt in memory,
    ``installed`` the one that is installed, ``intended`` the one that was asked for last.
    ``extension`` and ``extension_on_disk`` tell the same of this extension, ``way`` how Salt was
    installed, ``build`` the version of its package, ``last_result`` how the last update has ended,
    ``quarantined`` the versions in quarantine, and ``problems`` what is not set up right.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.report

    question
        A number that is given back, so that the newest answer is known. Defaults to ``0``.

    :raises CommandExecutionError: if ``question`` is not a whole number of at most 17 digits.
    """
    with errors.as_salts():
        return rollout_requests.report(Host(__opts__), question)


def request(
    number,
    version="",
    extension="",
    question=0,
    allow_downgrade=False,
    back=False,
    source=None,
):
    """
    Begin an update by a numbered request of a rollout, and return :py:func:`report`.

    A request of the number that was taken last is answered and not begun again. A lower number
    is refused: somebody newer steers this minion. If the request is refused, ``refused`` has the
    reason, ``again`` tells whether it may be over soon, and nothing was changed. A person uses
    :py:func:`update`.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.request 1767268800000000 version="'3008.3'"

    number
        The number of the request: the time at which it was made, in microseconds since 1970.

    version
        The version of Salt, as for :py:func:`plan`. Defaults to none.

    extension
        The version of this extension, instead of one of Salt. Defaults to none.

    question
        As for :py:func:`report`.

    allow_downgrade
        As for :py:func:`update`. Defaults to ``False``.

    back
        Whether it is a way back, by the packages that are kept if they are of this version.
        Defaults to ``False``.

    source
        As for :py:func:`plan`.

    :raises CommandExecutionError: if an argument is not valid.
    """
    with errors.as_salts():
        return rollout_requests.request(
            Host(__opts__),
            __salt__,
            number,
            version,
            extension,
            question,
            allow_downgrade=bool(allow_downgrade),
            back=bool(back),
            source=source,
        )


def withdraw(number, question=0):
    """
    Take back a request of a rollout, and return :py:func:`report`.

    An update that has not begun to install is called off; one that has begun goes on. Requests
    of lower numbers are refused from then on, also those that are still on their way.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.withdraw 1767268800000001

    number
        A number that is higher than that of the request.

    question
        As for :py:func:`report`.

    :raises CommandExecutionError: if an argument is not valid.
    """
    with errors.as_salts():
        return rollout_requests.withdraw(Host(__opts__), number, question)


def prefetch(version="", extension="", source=None):
    """
    Download in the background what :py:func:`request` would install; return :py:func:`report`.

    Returns at once. ``staged`` of a later report tells whether all is there.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.prefetch version="'3008.3'"

    version
        The version of Salt, as for :py:func:`plan`. Defaults to none.

    extension
        The version of this extension, instead of one of Salt. Defaults to none.

    source
        As for :py:func:`plan`.

    :raises CommandExecutionError: if an argument is not valid, or the database cannot be written.
    """
    with errors.as_salts():
        return rollout_requests.prefetch(Host(__opts__), __salt__, version, extension, source)
