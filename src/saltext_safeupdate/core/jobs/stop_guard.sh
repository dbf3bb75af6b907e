#!/bin/sh
# ExecStop= of the Salt minion: delays the stop until no job runs any more. Part of safeupdate.
#
# Usage: stop_guard.sh RUN_DIR UNIT SECONDS SECONDS_AT_SHUTDOWN wait|handover, with MAINPID set by
# systemd. With "handover", a restart does not wait: the processes of the minion are moved out of the
# unit, and it stays until its jobs have ended. If that cannot be done, this waits.
# Needs no Salt, no Python and no database, and never makes a stop impossible:
#   touch RUN_DIR/bypass      stops at once, also while this waits
#   systemctl kill UNIT       does not run this at all
# "stop_guard.sh --obstacle UNIT" only says what keeps this unit from being handed over.
run_dir=$1 unit=$2 limit=$3 shutdown_limit=$4 way=${5:-wait}
term_limit=90
name=${unit%.service}
place=/run/systemd/system/$unit.d drop_in=~safeupdate-inhibitor.conf
holder=salt-safeupdate-tmp-$unit

say() { echo "safeupdate: $*"; }

# Seconds of the boot: the time of day may be set meanwhile.
now() { cut -d . -f 1 /proc/uptime; }

within() { deadline=$(($(now) + $1)) looked=; }

# Time in which the host slept or stood still was no time for its jobs.
is_late() {
    at=$(now)
    [ $((at - ${looked:-$at})) -lt 60 ] || deadline=$((deadline + at - looked))
    looked=$at
    [ "$at" -ge "$deadline" ]
}

# A supervisor restarts the minion itself: it has the jobs lock alone, so nothing runs. It may be
# that of another minion which runs from the same packages.
supervised() {
    jobs=$(stat -c %i "$run_dir/jobs.lock" 2>/dev/null) || return 1
    held=" " by_jobs=
    # Read at once: line by line, a busy kernel leaves some out.
    locks=$(cat /proc/locks)
    while read -r _ kind _ mode pid where _; do
        [ "$kind $mode" = "FLOCK WRITE" ] || continue
        held="$held$pid:${where##*:} "
        [ "${where##*:}" != "$jobs" ] || by_jobs="$by_jobs $pid"
    done <<EOF
$locks
EOF
    for pid in $by_jobs; do
        # Another user may lock files that have these numbers in other file systems.
        [ -O "/proc/$pid" ] || continue
        for file in $(find "/proc/$pid/fd" -lname '*/supervisor.lock' 2>/dev/null); do
            case $held in *" $pid:$(stat -L -c %i "$file" 2>/dev/null) "*) return 0 ;; esac
        done
    done
    return 1
}

parent() {
    while read -r key value _; do
        [ "$key" = PPid: ] && echo "$value" && return
    done <"/proc/$1/status"
} 2>/dev/null

# Whether somebody must not wait for this very stop: a job would wait for ever, and a job may wait
# for the package manager whose scriptlet requests a restart. What a job has left in the background
# may want to start the minion later, and the stop would end it first.
is_waited_for() {
    holders=" $(find /proc/[0-9]*/fd -maxdepth 1 -lname "$lock" 2>/dev/null |
        cut -d / -f 3 | sort -u | tr '\n' ' ')"
    for entry in /proc/[0-9]*; do
        read -r comm <"$entry/comm" || continue
        [ "$comm" = systemctl ] || continue
        # One in a container has another systemd, and another minion.
        [ "$entry/ns/pid" -ef /proc/self/ns/pid ] || continue
        client=${entry#/proc/}
        words=" $(tr '\0' ' ' <"$entry/cmdline")"
        case $words in *" $name "* | *" $unit "* | *'*'* | *" --marked "*) ;; *) continue ;; esac
        # Others, such as 'status', wait for no stop.
        case $words in *start\ * | *stop\ * | *" force-reload "* | *" --now "*) ;; *) continue ;;
        esac
        ancestor=$client
        case $(group "$client")/ in
            */"$unit"/* | */"$name-before-"*.scope/*) return 0 ;;
        esac
        while [ "${ancestor:-0}" -gt 1 ]; do
            [ "$ancestor" != $$ ] || break
            case $holders in *" $ancestor "*) return 0 ;; esac
            read -r comm <"/proc/$ancestor/comm" || break
            # Before a stop that is no restart, it waits: it may remove the code that the jobs read.
            case $comm in
                apt | apt-get | aptitude | dpkg | unattended-upgr) ! restarts || return 0 ;;
                rpm | dnf | dnf5 | yum | zypper | packagekitd) ! restarts || return 0 ;;
            esac
            ancestor=$(parent "$ancestor")
        done
    done
    return 1
} 2>/dev/null

is_shutdown() { [ "$(systemctl is-system-running 2>/dev/null)" = stopping ]; }

is_inhibited() { [ "$(systemctl show --property=KillMode -- "$unit")" = KillMode=none ]; }

# Such a stop succeeds and leaves the processes of the unit as they are, as while its packages
# change (inhibitor.py). A unit of its own makes up for it when the jobs have ended.
put_off() {
    [ -d "${place%/*}" ] && [ "$(id -u)" = 0 ] || return 1
    ! is_shutdown || return 1
    read -r line <"/proc/$MAINPID/stat" && mkdir -p "$place" || return 1
    set -- ${line##*)}
    echo "$MAINPID ${20}" >"$place/inhibitor.process"
    # The texts are put in when this file is installed.
    cat >"$place/inhibitor.sh" <<'INHIBITOR'
@INHIBITOR@
INHIBITOR
    cat >"$place/$drop_in" <<'DROP_IN'
@DROP_IN@
DROP_IN
    systemctl daemon-reload && is_inhibited || {
        release
        return 1
    }
    # Without another unit that has it, a private /tmp would be gone with the stop.
    [ "$(systemctl show --property=PrivateTmp -- "$unit")" = PrivateTmp=no ] ||
        systemd-run --quiet --collect --unit="$holder" --property=PrivateTmp=yes \
            --property=JoinsNamespaceOf="$unit" -- sleep 86400
    systemctl reset-failed "$name-make-up.service"
    systemd-run --quiet --collect --unit="$name-make-up" --property=Restart=on-failure -- \
        /bin/sh "$0" --make-up "$run_dir" "$unit" "$limit" "$MAINPID" || {
        release
        return 1
    }
} 2>/dev/null

# Remove what put_off() has written. An update may have written the same by now, and needs it. What
# the drop-in names is removed when systemd does not use it any more.
release() {
    ! supervised || return 0
    rm -f "$place/$drop_in"
    systemctl daemon-reload
    rm -f "$place"/inhibitor.*
    rmdir "$place" 2>/dev/null
    systemctl --no-block stop "$holder" 2>/dev/null
}

# In the unit of its own: when the jobs have ended, really stop or restart what was put off. How the
# unit is by then says what was asked for last.
make_up() {
    drain= late= again=
    within "$limit"
    exec 8>>"$run_dir/drain.lock" 9>>"$run_dir/jobs.lock" || return 1
    until flock -n -x 9; do
        [ "$drain" ] || { flock -n -x 8 && drain=1; }
        running && [ ! -e "$run_dir/bypass" ] || break
        ! is_late || late=1
        [ -z "$late" ] || break
        sleep 0.5
    done
    while case $(systemctl is-active "$unit") in *activating) ;; *) false ;; esac; do
        sleep 0.1
    done
    if running; then
        again=restart
        systemctl is-active --quiet "$unit" || {
            again=stop
            # With the processes that it has; then they are stopped as usual.
            systemctl start "$unit" || {
                say "$unit has no start any more: its processes end"
                kill -TERM "$MAINPID"
            }
        }
    elif [ "$(systemctl is-active "$unit")" = failed ]; then
        # The minion has died. Else somebody has stopped it, or an update has restarted it.
        again=start
    fi
    release
    # Somebody may have restarted it at this moment, and the next one starts when this one is gone.
    [ "$(systemctl show --property=MainPID -- "$unit")" = "MainPID=$MAINPID" ] ||
        ! running || kill -TERM "$MAINPID"
    [ -z "$late" ] || {
        say "jobs did not end within $limit s; the minion stops and they are taken up later"
        : >"$run_dir/bypass"
    }
    [ -z "$again" ] || systemctl --no-block "$again" "$unit"
    return 0
}

running() {
    kill -0 "${1:-$MAINPID}" 2>/dev/null || return 1
    # A zombie has stopped.
    ! grep -q '^State:[[:space:]]*Z' "/proc/${1:-$MAINPID}/status" 2>/dev/null
}

# Why root does not work in this directory: somebody else could put links and pipes there, or another
# directory in its place.
of_others() {
    [ "$(id -u)" = 0 ] || return 1
    # There it is a directory. Whoever puts something else in its place is somebody else.
    for_place=$(readlink -f "$run_dir") || return 0
    run_dir=$for_place last=1
    while :; do
        read -r owner mode <<EOF
$(stat -c '%u %a' "$for_place")
EOF
        [ "$owner" = 0 ] || break
        # In a directory with the sticky bit, nobody renames what belongs to others.
        case $mode in
            *[2367]? | *[2367]) [ -z "$last" ] || break
                case $mode in [1357]???) ;; *) break ;; esac ;;
        esac
        [ "$for_place" != / ] || return 1
        for_place=${for_place%/*} last=
        for_place=${for_place:-/}
    done
    return 0
}

# The user of the minion waits there, with what that user may do. Root looks at processes only.
let_user_wait() {
    uid=$(sed -n 's/^Uid:[^0-9]*[0-9]*[^0-9]*\([0-9]*\).*/\1/p' "/proc/$MAINPID/status")
    gid=$(sed -n 's/^Gid:[^0-9]*[0-9]*[^0-9]*\([0-9]*\).*/\1/p' "/proc/$MAINPID/status")
    [ "${uid:-0}" != 0 ] && command -v setpriv >/dev/null 2>&1 || {
        say "not waiting for jobs: others than root can change $for_place"
        return 0
    }
    setpriv --reuid="$uid" --regid="${gid:-$uid}" --clear-groups --no-new-privs -- \
        /bin/sh -c "$(cat "$0")" "$0" "$run_dir" "$unit" "$limit" "$shutdown_limit" wait &
    waiting=$! lock=$run_dir/jobs.lock told=
    ! goes_down || limit=$shutdown_limit
    within $((limit + term_limit))
    while running "$waiting"; do
        ! supervised && ! is_late || kill -KILL "$waiting"
        [ "$told" ] || ! is_waited_for || {
            say "process $ancestor must not wait for this stop ($words), so that wait was ended"
            kill -TERM "$client"
            told=1
        }
        sleep 0.5
    done
}

bypassed() {
    [ -e "$run_dir/bypass" ] || return 1
    # A supervisor ends the next minion, and no earlier one.
    [ ! -f "$run_dir/bypass" ] || read -r only <"$run_dir/bypass"
    rm -f "$run_dir/bypass"
    term_limit=10
    say "not waiting for jobs: $run_dir/bypass was there"
}

# -- handover ------------------------------------------------------------------

groups=/sys/fs/cgroup

# The control group of a process, in the one hierarchy that systemd has.
group() { sed -n 's/^0:://p' "/proc/$1/cgroup" 2>/dev/null; }

# In the scope: have all of the unit's processes follow, but for its main one and the guard. What
# they start in the meantime is listed the next time.
move() {
    from=$groups$1/cgroup.procs to=$groups$(group self)/cgroup.procs main=$2 guard=$3 rounds=0
    while [ "$rounds" -lt 100 ]; do
        rest=
        for pid in $(cat "$from"); do
            case $pid in "$main" | "$guard") continue ;; esac
            rest=1
            echo "$pid" >"$to" || [ ! -d "/proc/$pid" ] || return 1
        done
        [ "$rest" ] || return 0
        rounds=$((rounds + 1))
    done
    return 1
} 2>/dev/null

# The step that the minion has reached becomes another one, unless it has gone on meanwhile.
step() { mv -T "$meeting.$1" "$meeting.$2" 2>/dev/null; }

# What systemd is about to do. While it executes itself anew, it does not answer.
jobs() {
    for pause in 1 1 1 1 1 0; do
        listed=$(systemctl list-jobs --no-legend --no-pager 2>/dev/null) && break
        sleep "$pause"
    done
    printf '%s\n' "$listed" | tr -s ' '
}

# Whether the system goes down or to sleep, and so has a deadline of its own.
goes_down() {
    ! is_shutdown || return 0
    case " $(jobs) " in
        *sleep.target\ start\ * | *suspend.target\ start\ * | *hibernate.target\ start\ *) return 0 ;;
    esac
    return 1
}

# Whether this stop is a part of a restart.
restarts() {
    case " $(jobs) " in
        *" $unit restart "*) return 0 ;;
    esac
    return 1
}

# Salt takes a minion whose process is in these files for one that runs already.
forget_pid() {
    [ -f "$meeting.word" ] && [ ! -L "$meeting.word" ] && read -r pidfile <"$meeting.word" || return 0
    [ -f "$pidfile" ] || return 0
    # It has no end of line.
    pid=$(cat "$pidfile")
    case $pid in '' | *[!0-9]*) return 0 ;; esac
    [ "$(group "$pid")" = "$scope_group" ] || return 0
    rm -f "$pidfile" "${pidfile%/*}/process_responsibility_${pidfile##*/}"
} 2>/dev/null

# Where the scopes of earlier minions are: beside the unit, in its slice.
beside() {
    own=$(group self)
    case $own/ in
        */"$unit"/*) echo "$groups${own%/"$unit"*}" ;;
        *) echo "$groups/system.slice" ;;
    esac
}

# Whether the scope of an earlier minion is there, also if the setting is another one by now.
has_scopes() {
    for scope in "$(beside)/$name-before-"*.scope; do
        [ ! -d "$scope" ] || return 0
    done
    return 1
}

# Whether an earlier minion is there, and not only what its jobs have left in the background.
earlier() {
    for scope in "$(beside)/$name-before-"*.scope; do
        before=${scope##*-before-}
        [ ! -d "/proc/${before%.scope}" ] || return 0
    done
    return 1
}

# What jobs of earlier minions have left in the background goes back to the unit, to fare as its
# KillMode= says: a scope ends all that is in it. The minion and its jobs stay there.
give_back() {
    for scope in "$(beside)/$name-before-"*.scope; do
        before=${scope##*-before-} before=${before%.scope}
        for pid in $(cat "$scope/cgroup.procs"); do
            ancestor=$pid
            while [ "${ancestor:-0}" -gt 1 ] && [ "$ancestor" != "$before" ]; do
                ancestor=$(parent "$ancestor")
            done
            [ "$ancestor" = "$before" ] || echo "$pid" >"$groups$(group self)/cgroup.procs"
        done
    done
} 2>/dev/null

# What of the unit is in the way. At its end, systemd removes what its jobs still use; and outside of
# it nothing holds them to its limits, which protect the host from them.
obstacle() {
    tmp= kind= directories= preserve= user= limits=
    while IFS='=' read -r key value; do
        case $key in
            PrivateTmp) tmp=$value ;;
            PrivateTmpEx) kind=$value ;;
            RuntimeDirectory) directories=$value ;;
            RuntimeDirectoryPreserve) preserve=$value ;;
            User) user=$value ;;
            Memory* | CPUQuota* | AllowedCPUs | Device* | IPAddress*)
                # Older versions of systemd say by a number that there is no limit.
                case $value in
                    '' | infinity | auto | 18446744073709551615 | '['*']') ;;
                    *) limits=${limits:-$key=} ;;
                esac
                ;;
        esac
    done <<EOF
$(systemctl show --property=PrivateTmp,PrivateTmpEx,RuntimeDirectory,RuntimeDirectoryPreserve,User \
    --property=MemoryMax,MemoryHigh,MemorySwapMax,CPUQuotaPerSecUSec,AllowedCPUs \
    --property=DevicePolicy,DeviceAllow,IPAddressAllow,IPAddressDeny -- "$unit" 2>/dev/null)
EOF
    if [ "$tmp" = yes ] && [ "$kind" != disconnected ]; then
        echo "$unit has 'PrivateTmp=', so its jobs would lose their /tmp"
    elif [ "$directories" ] && [ "$preserve" = no ]; then
        echo "$unit has 'RuntimeDirectory=' without 'RuntimeDirectoryPreserve=restart', so its jobs" \
            "would lose what is in there"
    elif [ "$limits" ]; then
        echo "$unit has '$limits', which its jobs would not be held to any more"
    else
        case $user in
            '' | root | 0) ;;
            *) echo "$unit has 'User=', so its stop guard may move no process" ;;
        esac
    fi
}

# This restart waits for jobs although it is not to. Status and events tell of it, too; the directory
# may be that of another user.
waits() {
    rm -f "$run_dir/waited"
    (umask 022 && set -C && echo "$1" >"$run_dir/waited")
    say "the minion is not handed over, its stop waits for jobs: $1"
} 2>/dev/null

# Whether this minion has begun a job.
has_jobs() {
    jobs=$(stat -L -c %d:%i "$run_dir/jobs.lock") || return 1
    for pid in $(cat "$groups$(group "$MAINPID")/cgroup.procs"); do
        for file in "/proc/$pid/fd"/*; do
            case $(readlink "$file") in */jobs.lock) ;; *) continue ;; esac
            [ "$(stat -L -c %d:%i "$file")" != "$jobs" ] || return 0
        done
    done
    return 1
} 2>/dev/null

# Whether the unit has started within the last minute: later, one without our hooks may have jobs.
is_young() {
    read -r line <"/proc/$MAINPID/stat" || return 1
    # Behind its name, the 20th is when it started, in hundredths of a second of the boot.
    set -- ${line##*)}
    [ $(($(now) - ${20} / 100)) -lt 60 ]
}

# Whether a job has control groups of its own below that of the unit, as a container may. What is in
# them would be ended with the unit; in the scope, it would be without them and what they limit.
has_groups() {
    for procs in $(find "$groups$(group "$MAINPID")" -mindepth 2 -name cgroup.procs); do
        [ "$procs" = "$groups$(group self)/cgroup.procs" ] || [ -z "$(cat "$procs")" ] || return 0
    done
    return 1
} 2>/dev/null

# Whether the unit has a connection by TCP. A minion without one has heard of no job, however long it
# has been there: it sleeps first, or its master is not where its settings say.
is_connected() {
    # State 01, as in the kernel's net/tcp_states.h; the 10th field is the socket.
    any='[^ ]* *' net=/proc/$MAINPID/net
    line="^ *[0-9]*: $any${any}01 $any$any$any$any$any\\([0-9]*\\) .*"
    sockets=" $(sed -n "s/$line/socket:[\\1]/p" "$net/tcp" "$net/tcp6" | tr '\n' ' ')"
    for pid in $(cat "$groups$(group "$MAINPID")/cgroup.procs"); do
        for file in "/proc/$pid/fd"/*; do
            case $sockets in *" $(readlink "$file") "*) return 0 ;; esac
        done
    done
    return 1
} 2>/dev/null

# Salt has no handler for this signal, and systemd takes this end for a good one.
end_parent() {
    kill -USR2 "$MAINPID" 2>/dev/null
    tries=0
    while running && [ "$tries" -lt 100 ]; do
        tries=$((tries + 1))
        sleep 0.05
    done
}

handover() {
    [ "$way" = handover ] && [ "$(id -u)" = 0 ] && [ -e "$groups/cgroup.controllers" ] || return 1
    command -v systemd-run >/dev/null 2>&1 && [ ! -e "$run_dir/bypass" ] && restarts || return 1
    why=$(obstacle)
    [ -z "$why" ] || {
        waits "$why"
        return 1
    }
    ! has_groups || {
        waits "a job has control groups of its own in $unit"
        return 1
    }
    meeting=$run_dir/handover.$MAINPID main=
    for pid in $(cat "/proc/$MAINPID/task"/*/children); do main=$pid; done
    # Else the next minion would find the PID file of this one, and not start.
    [ "$main" ] || [ ! -d "$meeting.open" ] || {
        waits "the kernel does not tell the children of a process (CONFIG_PROC_CHILDREN)"
        return 1
    }
    for reached in taking taken refused moved back withdrawn; do rm -rf "$meeting.$reached"; done
    if ! step open asked; then
        # One that has not begun has no job yet, and an earlier one serves: it ends at once. In the
        # seconds that Salt takes to end, it would begin some.
        earlier || return 1
        ! has_jobs && { is_young || ! is_connected; } || {
            waits "it does not say that it can be, and an earlier one is there"
            return 1
        }
        for pid in $(cat "$groups$(group "$MAINPID")/cgroup.procs"); do
            case $pid in "$MAINPID" | $$) ;; *) kill -KILL "$pid" 2>/dev/null ;; esac
        done
        end_parent
        return 0
    fi
    tries=0
    until [ -d "$meeting.taken" ]; do
        [ ! -d "$meeting.refused" ] || break
        tries=$((tries + 1))
        # It answers within a second, unless it has much to do.
        [ "$tries" -lt 50 ] || ! step asked withdrawn || break
        [ "$tries" -lt 100 ] && running || break
        sleep 0.1
    done
    if [ ! -d "$meeting.taken" ]; then
        why="it did not answer in time"
        [ ! -d "$meeting.refused" ] || read -r why <"$meeting.word" || why="it has refused"
        rm -rf "$meeting".*
        waits "$why"
        return 1
    fi
    # What limits the slice of the unit holds for its jobs, too.
    slice=$(systemctl show --property=Slice -- "$unit" 2>/dev/null | sed -n 's/^Slice=//p')
    # The minion in the scope is told by SIGURG that the scope is stopped, as at the shutdown: it takes
    # no more jobs, and ends after those that it has. Jobs ignore it, and nobody else sends it.
    systemd-run --scope --quiet --collect --unit="$name-before-$main" \
        ${slice:+--slice="$slice"} --description="Jobs of an earlier $unit" --property=Delegate=yes \
        --property=KillSignal=SIGURG --property=SendSIGHUP=no \
        --property=TimeoutStopSec="$shutdown_limit" --property=After=network.target \
        /bin/sh "$0" --move "$(group "$MAINPID")" "$MAINPID" $$ || {
        waits "its processes cannot be moved out of $unit"
        step taken back
        return 1
    }
    # Somebody may want it to stop for good by now.
    restarts || {
        step taken back
        return 1
    }
    scope_group=$(group "$main")
    forget_pid
    step taken moved
    end_parent
    rm -f "$run_dir/waited"
    say "the minion is handed over: it ends when its jobs have ended"
    restarts || {
        give_back
        systemctl --no-block stop "$name-before-$main.scope" 2>/dev/null
    }
    return 0
}

# A stop is also the end of earlier minions, whose jobs have had the same time.
end_earlier() {
    [ "$way" = wait ] && ! has_scopes || [ "${only-}" = unit ] || restarts || {
        give_back
        systemctl stop "$name-before-*.scope" 2>/dev/null
    }
}

[ "$1" != --obstacle ] || {
    unit=$2
    obstacle
    exit
}
[ "$1" != --move ] || {
    move "$2" "$3" "$4"
    exit
}
[ "$1" != --make-up ] || {
    run_dir=$2 unit=$3 limit=$4 MAINPID=$5
    name=${unit%.service} place=/run/systemd/system/$unit.d holder=salt-safeupdate-tmp-$unit
    of_others || make_up
    exit
}

case ${MAINPID:-0} in 0 | *[!0-9]*) exit 0 ;; esac
[ -d "$run_dir" ] && command -v flock >/dev/null 2>&1 || exit 0
running && ! supervised || exit 0
! of_others || {
    let_user_wait
    way=wait
    end_earlier
    exit 0
}
[ "$way" = handover ] || rm -f "$run_dir/waited"
! handover || exit 0
! goes_down || limit=$shutdown_limit
lock=$(readlink -f "$run_dir")/jobs.lock

# A pipe would have it wait for somebody who writes.
for file in "$run_dir/drain.lock" "$lock"; do
    [ -f "$file" ] || [ ! -e "$file" ] || exit 0
done
exec 8>>"$run_dir/drain.lock" 9>>"$run_dir/jobs.lock" || exit 0
within "$limit"
told= drain=
until bypassed || flock -n -x 9; do
    # New jobs are held for the next minion. A process that tests this lock has it for a moment.
    [ "$drain" ] || { flock -n -x 8 && drain=1; }
    if is_late; then
        say "jobs did not end within $limit s; the minion stops and they are taken up later"
        break
    fi
    running || break
    # Its restart may come while this waits for the jobs before it.
    ! supervised || exit 0
    [ "$told" ] || say "the minion stops when its jobs have ended, within $limit s;" \
        "'touch $run_dir/bypass' stops it now"
    told=1
    ! is_waited_for || {
        say "process $ancestor must not wait for this stop ($words)"
        ! put_off || exit 0
        kill -TERM "$client"
        say "it cannot be put off, so this wait was ended; it comes when all jobs have ended"
    }
    # An update has begun: it restarts the minion, and this stop leaves its processes as they are.
    [ ! -e "$place/$drop_in" ] || ! is_inhibited || exit 0
    sleep 0.5
done

# If this has waited for all jobs, what is not ended of these processes was killed: the next minion
# does not begin it again. The file of the lock says so.
flock -n -x 9 && {
    cat /proc/sys/kernel/random/boot_id
    echo "$MAINPID" "$(cat "/proc/$MAINPID/task"/*/children)"
} 2>/dev/null >/proc/self/fd/9

# This still has the locks, so that no job begins in between.
kill -TERM "$MAINPID" 2>/dev/null
within "$term_limit"
while running; do
    if is_late; then
        say "the minion did not end within $term_limit s"
        kill -KILL "$MAINPID" 2>/dev/null
        break
    fi
    sleep 0.1
done
rm -rf "$run_dir/handover.$MAINPID".*
end_earlier
exit 0
