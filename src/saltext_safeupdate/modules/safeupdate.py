"""
Update the minion with Salt itself, and lose nothing
====================================================

.. versionadded:: 0.1.0

Show and steer the updates of this minion. An update by a state needs no function of this module: a
state that changes the minion's own packages is deferred to the end of its run, and then the minion
restarts. That ends no job: the minion is handed over, or the restart waits until every job has
ended and its return has been delivered. :py:func:`update` does more: it checks and downloads
everything first. In both cases the updated minion is watched, and rolled back if it does not prove
healthy.

Times in the answers are seconds since 1970. Next to them, ``times`` has the same times in ISO 8601,
such as ``2026-11-22T20:00:00+00:00``; None if there is no such time.

Inside a transaction of a transactional system, calls of :py:func:`restart` and :py:func:`update`
are passed to the running minion when the transaction is closed. All other functions fail there.
"""

import sys

import salt.defaults.exitcodes

from saltext_safeupdate import hooks
from saltext_safeupdate.admin import errors
from saltext_safeupdate.admin.status import check as checks
from saltext_safeupdate.admin.status import dated, drains
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


def status(zone="UTC"):
    """
    Return the newest update of this minion, and the versions that run and are installed.

    ``phase``, ``reason``, ``from`` and ``to`` describe the newest update or deferred restart;
    ``phase`` is ``idle`` if there never was one. ``running`` and ``installed`` are the present
    versions of Salt; ``extension`` has the versions of this extension. ``draining`` says whether
    new jobs are held; it is None if the locks do not work, and ``problem`` says why. ``drained``
    says until when, if :py:func:`drain` is in effect. ``restart`` says what happens to jobs in the
    next restart by others: ``handover``, or ``wait:`` and the reason why it waits for them.
    ``waited`` says why the last restart waited, if it should have been a handover. ``waits_for``
    names the jobs that an update waits for, as "JID function". ``undelivered`` is the number of
    returns that have not reached their master yet. ``servers`` names the services of a master on
    this host that are updated with the minion; it is missing if there are no such services.
    ``created`` is when the update was requested, and ``changed`` when its record changed last.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.status
        salt '*' safeupdate.status zone=Europe/Berlin

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this minion, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if the database cannot be read, or there is no such time zone.
    """
    with errors.as_salts():
        return statuses.status(Host(__opts__), zone)


def history(limit=20, zone="UTC"):
    """
    Return the newest updates with all their phases, newest first.

    Each of ``phases`` has a ``phase``, the ``reason``, and ``at``, the time when it began. The rest
    is as in :py:func:`status`.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.history limit=5

    limit
        How many updates, at most. Defaults to ``20``.

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this minion, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if ``limit`` is not a whole number above 0, there is no such time
        zone, or the database cannot be read.
    """
    with errors.as_salts():
        return statuses.history(Host(__opts__), limit, zone)


def restart(reason="safeupdate.restart", jitter=0):
    """
    Restart the minion without ending a job.

    If the minion can be handed over, the restart does not wait for jobs, and otherwise until every
    job has ended and its return is delivered. The function returns at once; the result appears in
    :py:func:`status`. If a restart is already pending, there is no second one.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.restart

    reason
        A text for the history.

    jitter
        Before the restart, wait for a random time of up to this number of seconds. Defaults to
        ``0``.

    :raises CommandExecutionError: if an update is under way that has not installed yet.
    """
    with errors.as_salts():
        asked = inside.asked("safeupdate.restart", reason=str(reason))
        return asked or steering.restart(Host(__opts__), str(reason), jitter)


def plan(version=None, allow_downgrade=False, refresh=True, back=False, source=None):
    """
    Return the effects of an update, and the reasons not to run it. Nothing is installed.

    ``changes`` has the versions before and after, ``jobs`` the jobs that the update would wait for,
    and ``steps`` the upgrade steps that would run. ``staged`` says whether the update needs no
    network any more, ``reboot`` whether a reboot of the host activates the version, as on a
    transactional system. ``findings`` has every problem with a ``code``, a ``problem``, a ``fix``
    and whether it is ``blocking``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.plan "'3008.3'"

    version
        The version, in full or without the part that packaging adds (``3008.3`` means ``3008.3-1``,
        too). ``3008`` means the newest of that series. Defaults to the newest
        available version. Quote it: as a number, 3007.10 is 3007.1, so a number with one decimal is
        refused.

    allow_downgrade
        Whether the version may be older than the installed one. Defaults to ``False``.

    refresh
        Whether the index of the packages is refreshed first, as an update does it. Defaults to
        ``True``.

    back
        Whether to plan a :py:func:`rollback`: then the kept packages are used if they are of this
        version, and no repository has to offer it. Defaults to ``False``.

    source
        The source of the version: ``packages``, ``index`` (wheels from the index that pip is
        configured for), or a directory with builds, as for :py:func:`avail`. The configuration of
        the minion has to allow it: ``safeupdate:slots_sources``. With a build, the minion runs from
        a slot of its own, and packages do not change. Defaults to ``packages``, or
        to ``safeupdate:slots_source`` if the minion runs from a slot, or if no package owns its
        Salt.

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
    List the versions of Salt that are available to this minion, by series, the newest first.

    ``versions`` has each series. Its entries have a ``version`` and a ``source``. The source
    ``packages`` is the package manager; then ``installed`` says whether this version is installed.
    A version is listed if each of the minion's own packages is available in it, or installed. Any
    other source is a directory with builds; then ``build``, ``kind``, ``machine``, ``size`` (bytes)
    and ``signed_by`` come from the manifest, and ``problem`` says why the build does not fit this
    host. ``problems`` has the manifests that are refused, with the reason. Only the index of the
    packages, manifests and signatures are downloaded. :py:func:`update` accepts each ``source``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.avail
        salt 'web1' safeupdate.avail source=salt://builds

    source
        The directory with builds: an absolute path, or a ``salt://`` path; or ``index``: that which
        pip is configured for. ``safeupdate:slots_sources`` has to list it. Defaults to
        ``safeupdate:slots_source``.

    refresh
        Whether the index of the packages is refreshed first. Defaults to ``True``.

    :raises CommandExecutionError: if the source cannot be read, or the package manager fails.
    """
    with errors.as_salts():
        return available.avail(Host(__opts__), __salt__, source, refresh=bool(refresh))


def stage(version=None, source=None):
    """
    Download and verify an update, so that it needs no network later. Nothing is installed.

    Files that are already staged are not downloaded again, unless they were altered since: then the
    result has ``staged_again``, which says how.

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

    Returns at once, or when a restart that has begun is over; the result appears in
    :py:func:`status`. If the same request is repeated, it is the same update. A different request
    supersedes it as long as nothing is installed; after that, it is refused. The updated minion has
    to prove healthy. Otherwise it is rolled back, and its
    version goes into quarantine.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.update "'3008.3'"
        salt 'web1' safeupdate.update 3008 source=salt://builds

    version
        As for :py:func:`plan`.

    when
        This matters if the update cannot install while jobs run. ``idle``: wait until no job runs,
        however long that takes. ``now``: hold new jobs, and wait for the running ones up to
        ``safeupdate:jobs_timeout`` seconds. Defaults to ``idle``.

    allow_downgrade
        Whether it may be an older version than the installed one. Defaults to ``False``.

    refresh
        Whether the index of the packages is refreshed first. Defaults to ``True``.

    source
        As for :py:func:`plan`. This job fetches, verifies and unpacks a build; the update needs no
        network afterwards.

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
    Wait until an update or a deferred restart has ended, and return its result.

    The return code is ``0`` only if the update was ``committed``. So the exit status of
    ``salt-call`` shows the result, and so does the exit status of ``salt`` if it waits long enough.
    No update waits for this job. The minion that runs after the update returns it to the master.

    CLI Example:

    .. code-block:: bash

        salt-call safeupdate.update "'3008.3'" && salt-call safeupdate.wait
        salt --timeout=60 'web1' safeupdate.wait timeout=900

    update
        The ID of an update, as :py:func:`update` and :py:func:`history` give it. Defaults to the
        newest update; if a newer one begins, the function waits for that.

    timeout
        Seconds to wait. Then the update is returned in its present phase. Defaults to ``3600``.

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

    This is an update like any other: it waits for jobs, and the minion is watched. The version that
    you go back from is put into quarantine, so that no state run installs it again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.rollback

    to
        A version. Defaults to the one that :py:func:`revisions` calls ``previous``. Any other
        version is downloaded, unless the minion runs from a slot. Then there has to be a slot with
        that version; ``without_slot`` means the Salt that the unit of the minion starts without a
        slot, such as the package.

    :raises CommandExecutionError: if this minion has no previous revision, or an update is
        under way.
    """
    with errors.as_salts():
        return updating.rollback(Host(__opts__), to)


def revisions(zone="UTC"):
    """
    Return the revisions that this minion knows.

    ``active`` is installed, ``previous`` is the one that :py:func:`rollback` goes back to,
    ``staged`` is downloaded and verified, and ``skipped`` was rolled back, with the reason and the
    time (``at``, epoch seconds). If there are slots on this host, ``slots`` has each of them: its
    ``size`` in bytes, the time when it was ``staged`` (epoch seconds), and whether it is the
    ``active`` or ``previous`` slot of this minion. ``without_slot`` is the Salt that the unit of
    the minion starts without a slot.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.revisions

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this minion, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if the database cannot be read, or there is no such time zone.
    """
    with errors.as_salts():
        return dated.revisions(updating.revisions(Host(__opts__)), zone)


def forget_slot(slot):
    """
    Remove a slot to free disk space.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.forget_slot salt-3008.3-onedir-x86_64-1f0c9a77b2d4e655

    slot
        Its name, as listed by :py:func:`revisions`.

    :raises CommandExecutionError: if a minion of this host runs from it or goes back to it,
        or if there is no such slot.

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
    Cancel an update or a restart that is waiting, and let new jobs start again.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.cancel

    :raises CommandExecutionError: if nothing waits, or the point of no return has passed.
    """
    with errors.as_salts():
        return steering.cancel(Host(__opts__))


def drain(timeout=3600, reason="", zone="UTC"):
    """
    Start no new jobs for a while, and let the running ones finish.

    New jobs are held and run afterwards under their JIDs. The drain ends with :py:func:`undrain`,
    or by itself after ``timeout`` seconds. A restart of the minion does not end it; a reboot of the
    host does. An update that is under way continues, and its new minion drains, too. A second call
    sets the time again. Functions that show jobs or steer updates still work.

    ``running`` and ``held`` are jobs as "JID function"; ``drained`` has ``until`` (epoch seconds)
    and the ``reason``.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.drain timeout=600 reason='disk is replaced'

    timeout
        Seconds after which the drain ends by itself, at most 86400. Defaults to ``3600``.

    reason
        A text for :py:func:`status`. Empty by default.

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this minion, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if ``timeout`` is not valid, there is no such time zone, or the
        directory of the locks cannot be written.
    """
    with errors.as_salts():
        return drains.drain(Host(__opts__), timeout, reason, zone)


def undrain():
    """
    Take new jobs again; the held ones begin now.

    ``was_drained`` says whether :py:func:`drain` was in effect. ``draining`` may still be true,
    because an update holds jobs as well.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.undrain

    :raises CommandExecutionError: if the directory of the locks cannot be written.
    """
    with errors.as_salts():
        return drains.undrain(Host(__opts__))


def jobs(zone="UTC"):
    """
    List the jobs that run, the jobs that are held, and the open jobs of the ledger.

    ``running`` and ``held`` are "JID function"; ``undelivered`` are returns that have not reached
    their master yet, with ``sends`` (how often each was sent) and ``since`` (the time of the last
    change, in epoch seconds). ``recorded`` is every job that is not delivered, with its ``state``
    (``held``, ``accepted``, ``running``, ``finished``), ``attempts`` (how often it was started),
    ``sends``, ``accepted`` (epoch seconds) and ``master``.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.jobs

    zone
        The time zone of ``times``: ``UTC``, ``local`` for the zone of this minion, or a name such
        as ``Europe/Berlin``. Defaults to ``UTC``.

    :raises CommandExecutionError: if the database cannot be read, or there is no such time zone.
    """
    with errors.as_salts():
        return job_actions.listed(Host(__opts__), zone)


def resume(jid):
    """
    Start an interrupted or held job again now, or send its return again now.

    States of a state run that have finished do not run again.

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
    Remove a job from the ledger and from the queue: it neither runs nor returns.

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
    Return which of these jobs this minion has accepted, with their states, and which it has missed.

    The master asks this before it publishes a job again. A job that is not in the answer has never
    arrived, or the ledger does not record its function. A job is ``unknown`` if it is older than
    the ledger, or if it may have run while the ledger could not be written or the minion ran
    without this extension.

    CLI Example:

    .. code-block:: bash

        salt 'web*' safeupdate.accepted '["20260101120000000000"]'

    jids
        List of job IDs.

    aims
        List of targets. Each has ``tgt``, ``tgt_type`` and ``delimiter`` as they were published,
        and ``jobs``: the job ID of each publication, by its number, and ``ages``: how many seconds
        ago each was published. If the minion does not have the job, the answer says under ``#`` and
        that number: ``missed`` if it came while this minion was restarted, or was brought back
        after a crash; ``away`` if it came at another time; ``not meant`` if Salt's own matcher on
        this minion says so; or ``undecided``. Empty by default.

    :raises CommandExecutionError: if ``jids`` is not a list of job IDs, ``aims`` is not such a
        list, or the database cannot be read.
    """
    with errors.as_salts():
        blind = not hooks.minion_has_them(__opts__)
        return job_actions.accepted(Host(__opts__), jids, aims, blind=blind)


def check():
    """
    Return the problems of the set-up, with their fixes. The list is empty if there are no problems.

    Each entry has a ``code``, a ``problem`` and a ``fix``. If the last update failed or was rolled
    back, that is an entry, too. About its master, a minion can only find out whether the master
    tells its version.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.check
    """
    with errors.as_salts():
        return checks.check(Host(__opts__), __salt__)


def report(question=0):
    """
    Return the state of this minion for a rollout, and its versions. Nothing is changed.

    ``number`` is the number of the newest request that was taken (``0`` without a request).
    ``phase`` and ``reason`` describe its update (``idle`` if it needs no update). ``waits_for`` is
    the number of jobs that the update waits for, and ``phases`` has the seconds of each phase that
    is over. ``refused`` says why a request was not taken, and ``again`` whether the reason may be
    over soon. ``staged`` is ``done`` or ``failed`` after :py:func:`prefetch`. ``running`` is the
    version of Salt in memory, ``installed`` the installed one, ``intended`` the one that was
    requested last. ``extension`` and ``extension_on_disk`` are the same for this extension. ``way``
    says how Salt was installed, ``build`` is the version of its package, ``last_result`` says how
    the last update ended, ``quarantined`` lists the versions in quarantine, and ``problems`` the
    problems of the set-up.

    CLI Example:

    .. code-block:: bash

        salt '*' safeupdate.report

    question
        A number that is returned with the answer, so that the newest answer can be recognised.
        Defaults to ``0``.

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

    A request with the number that was taken last is answered and does not begin again. A lower
    number is refused, because a newer request steers this minion. If the request is refused,
    ``refused`` has the reason, ``again`` says whether the reason may be over soon, and nothing was
    changed. People use :py:func:`update`.

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
        Whether it is a way back, with the kept packages if they are of this version. Defaults to
        ``False``.

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

    An update that has not begun to install is cancelled; an update that has begun continues. From
    then on, requests with lower numbers are refused, even if they were sent before.

    CLI Example:

    .. code-block:: bash

        salt 'web1' safeupdate.withdraw 1767268800000001

    number
        A number that is higher than the number of the request.

    question
        As for :py:func:`report`.

    :raises CommandExecutionError: if an argument is not valid.
    """
    with errors.as_salts():
        return rollout_requests.withdraw(Host(__opts__), number, question)


def prefetch(version="", extension="", source=None):
    """
    Download the files for a :py:func:`request` in the background; return :py:func:`report`.

    Returns at once. ``staged`` of a later report says whether the download is complete.

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
