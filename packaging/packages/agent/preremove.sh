#!/bin/sh
# deb: remove, upgrade …; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now coresteer-agent.service
elif command -v systemctl >/dev/null; then
  systemctl --quiet disable coresteer-agent.service
fi
unrestored=/var/lib/coresteer/agent/unrestored
rm -f "$unrestored"
# while there is a program that can
if ! coresteer-agent restore; then
  echo "Not every setting was restored (above); a reboot restores them all. The journal stays in /var/lib/coresteer." >&2
  [ ! -d "${unrestored%/*}" ] || touch "$unrestored"
fi
find /usr/lib/coresteer-agent -name __pycache__ -prune -exec rm -r {} +
