#!/bin/sh
# deb: remove, then purge if asked to; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in
  remove | 0)
    rm -rf /usr/lib/coresteer-agent
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    ;;
  purge)
    rm -rf /var/lib/coresteer/agent /etc/coresteer/limits.toml /etc/coresteer/token
    for folder in /var/lib/coresteer /etc/coresteer; do
      [ ! -d "$folder" ] || rmdir --ignore-fail-on-non-empty "$folder" # the other package's, or `coresteer up`'s
    done
    ;;
esac
