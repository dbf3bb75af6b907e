#!/bin/sh
# Become a booted container: boot.sh CGROUP LOWER RUNDIR NSPAWN-ARGUMENT...
# Runs in a private mount namespace; what it mounts is gone when the container is.
set -eu
cgroup=$1 lower=$2 dir=$3
shift 3
# systemd-nspawn offers its payload what the host has; give it a pure cgroup2 tree even where
# the host still has v1 controllers, and a group of its own below it.
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$cgroup"
echo $$ > "/sys/fs/cgroup/$cgroup/cgroup.procs"
if [ -e "$dir/mount" ]; then
    # A root of another kind.
    sh "$dir/mount" "$lower" "$dir"
else
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$dir/up,workdir=$dir/work" "$dir/root"
fi
# A host of its own has pidfd_getfd(2), too; the filter of a container does not let it through.
exec systemd-nspawn --quiet --directory="$dir/root" --register=no --keep-unit --boot \
    --resolv-conf=off --timezone=off --link-journal=no --console=pipe \
    --system-call-filter=pidfd_getfd "$@" < /dev/null
