#!/bin/sh
# The tool; its version, which is asked for before each call, needs no interpreter.
if [ "$*" = --version ]; then
  version=6.1.1
  [ -e /run/rig/version ] && read -r version </run/rig/version
  echo "transactional-update $version"
  exit 0
fi
exec /usr/bin/env python3 /usr/local/sbin/tool.py "$@"
