"""What the programs printed on real systems."""

VERSION = "transactional-update 6.1.1\n"
DEFAULT = "ID 271 gen 93 top level 266 path @/.snapshots/9/snapshot\n"
DEFAULT_NONE = "ID 5 (FS_TREE)\n"
SNAPPER = """\
{
  "root": [
    {"number": 0, "date": "", "cleanup": "", "description": "current",
     "default": false, "active": false, "userdata": null},
    {"number": 1, "date": "2026-01-02 03:04:05", "cleanup": "", "description": "first root",
     "default": false, "active": true, "userdata": {"important": "yes"}},
    {"number": 2, "date": "2026-02-03 04:05:06", "cleanup": "number",
     "description": "Snapshot Update of #1", "default": true, "active": false,
     "userdata": {"transactional-update-in-progress": "yes"}}
  ]
}
"""
MOUNTINFO = """\
1 0 0:25 /@/.snapshots/9/snapshot / ro shared:1 - btrfs /dev/vda3 ro,space_cache=v2,subvolid=271
25 1 0:25 /@/.snapshots /.snapshots rw shared:2 - btrfs /dev/vda3 rw,subvolid=266
26 1 0:25 /@/home /home rw,relatime - btrfs /dev/vda3 rw,subvolid=262,subvol=/@/home
27 1 0:25 /@/var /var rw,relatime - btrfs /dev/vda3 rw,subvolid=258,subvol=/@/var
28 1 0:4 / /proc rw,nosuid - proc proc rw
29 1 0:30 / /srv/with\\040space rw - ext4 /dev/vdb rw
30 1 0:31 / /run rw - tmpfs tmpfs rw
"""
USR = (
    "40 1 0:25 /@/.snapshots/12/snapshot/usr /usr ro - btrfs /dev/vda3 ro,subvolid=280,"
    "subvol=/@/.snapshots/12/snapshot\n"
)
APPLIED = (
    "40 1 0:25 /@/.snapshots/12/snapshot/usr /usr ro - btrfs /dev/vda3 ro,subvolid=280,"
    "subvol=/@/.snapshots/12/snapshot\n"
    "41 1 0:25 /@/.snapshots/12/snapshot/etc /etc rw - btrfs /dev/vda3 ro,subvolid=281,"
    "subvol=/@/.snapshots/12/snapshot/etc\n"
)
CONTAINER = "1 0 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n"
