#!/bin/sh
# deb: remove, upgrade …; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now coresteer-agent.service
elif command -v systemctl >/dev/null; then
  systemctl --quiet disable coresteer-agent.service
fi
# while there is a program that can
coresteer-agent restore ||
  echo "Not every setting was restored (above); a reboot restores them all. The journal stays in /var/lib/coresteer." >&2
find /usr/lib/coresteer-agent -name __pycache__ -prune -exec rm -r {} +
