#!/bin/sh
# deb: remove, then purge if asked to; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in
  remove | 0)
    rm -rf /usr/lib/coresteer-agent
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    ;;
  purge)
    rm -rf /etc/coresteer/limits.toml /etc/coresteer/token
    if [ -e /var/lib/coresteer/agent/unrestored ]; then
      echo "/var/lib/coresteer/agent stays: its journal lists settings that were not restored. Delete it after a reboot." >&2
    else
      rm -rf /var/lib/coresteer/agent
    fi
    for folder in /var/lib/coresteer /etc/coresteer; do
      [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty "$folder" # the other package's, or `coresteer up`'s
    done
    ;;
esac
