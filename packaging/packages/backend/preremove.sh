#!/bin/sh
# deb: remove, upgrade …; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now coresteer-backend.service
elif command -v systemctl >/dev/null; then
  systemctl --quiet disable coresteer-backend.service
fi
find /usr/lib/coresteer-backend -name __pycache__ -prune -exec rm -r {} +
