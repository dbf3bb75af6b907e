#!/bin/sh
# ExecStop= of the Salt minion: delays the stop until no job runs any more. Part of safeupdate.
#
# Usage: stop_guard.sh RUN_DIR UNIT SECONDS SECONDS_AT_SHUTDOWN, with MAINPID set by systemd.
# Needs no Salt, no Python and no database, and never makes a stop impossible:
#   touch RUN_DIR/bypass      stops at once, also while this waits
#   systemctl kill UNIT       does not run this at all
run_dir=$1 unit=$2 limit=$3 shutdown_limit=$4
term_limit=90
name=${unit%.service}

say() { echo "safeupdate: $*"; }

# Seconds of the boot: the time of day may be set meanwhile.
now() { cut -d . -f 1 /proc/uptime; }

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

# A job that waits for this very stop would wait for ever: its systemctl is ended. The stop or
# restart that it requested still comes.
let_go() {
    holders=" $(find /proc/[0-9]*/fd -maxdepth 1 -lname "$lock" 2>/dev/null |
        cut -d / -f 3 | sort -u | tr '\n' ' ')"
    for entry in /proc/[0-9]*; do
        read -r comm <"$entry/comm" || continue
        [ "$comm" = systemctl ] || continue
        client=${entry#/proc/}
        words=" $(tr '\0' ' ' <"$entry/cmdline")"
        case $words in *" $name "* | *" $unit "* | *'*'*) ;; *) continue ;; esac
        ancestor=$client
        while [ "${ancestor:-0}" -gt 1 ]; do
            [ "$ancestor" != $$ ] || break
            case $holders in
                *" $ancestor "*)
                    say "job in process $ancestor waits for this stop itself: it goes on ($words)"
                    # Its state says so.
                    (umask 077 && echo "$words" >"$run_dir/let_go.$ancestor")
                    kill -TERM "$client"
                    break
                    ;;
            esac
            ancestor=$(parent "$ancestor")
        done
    done
} 2>/dev/null

running() {
    kill -0 "$MAINPID" 2>/dev/null || return 1
    # A zombie has stopped.
    ! grep -q '^State:[[:space:]]*Z' "/proc/$MAINPID/status" 2>/dev/null
}

bypassed() {
    [ -e "$run_dir/bypass" ] || return 1
    rm -f "$run_dir/bypass"
    term_limit=10
    say "not waiting for jobs: $run_dir/bypass was there"
}

case ${MAINPID:-0} in 0 | *[!0-9]*) exit 0 ;; esac
[ -d "$run_dir" ] && command -v flock >/dev/null 2>&1 || exit 0
running && ! supervised || exit 0
[ "$(systemctl is-system-running 2>/dev/null)" = stopping ] && limit=$shutdown_limit
lock=$(readlink -f "$run_dir")/jobs.lock

exec 8>>"$run_dir/drain.lock" 9>>"$run_dir/jobs.lock" || exit 0
rm -f "$run_dir"/let_go.*
deadline=$(($(now) + limit))
told= drain=
until bypassed || flock -n -x 9; do
    # New jobs are held for the next minion. A process that tests this lock has it for a moment.
    [ "$drain" ] || { flock -n -x 8 && drain=1; }
    if [ "$(now)" -ge "$deadline" ]; then
        say "jobs did not end within $limit s; the minion stops and they are taken up later"
        break
    fi
    running || break
    # Its restart may come while this waits for the jobs before it.
    ! supervised || exit 0
    [ "$told" ] || say "the minion stops when its jobs have ended, within $limit s;" \
        "'touch $run_dir/bypass' stops it now"
    told=1
    let_go
    sleep 0.5
done

# If this has waited for all jobs, what is not ended of these processes was killed: the next minion
# does not begin it again. The file of the lock says so.
flock -n -x 9 && {
    cat /proc/sys/kernel/random/boot_id
    echo "$MAINPID" "$(cat "/proc/$MAINPID/task"/*/children)"
} 2>/dev/null >"$run_dir/jobs.lock"

# This still has the locks, so that no job begins in between.
kill -TERM "$MAINPID" 2>/dev/null
deadline=$(($(now) + term_limit))
while running; do
    if [ "$(now)" -ge "$deadline" ]; then
        say "the minion did not end within $term_limit s"
        kill -KILL "$MAINPID" 2>/dev/null
        break
    fi
    sleep 0.1
done
exit 0
