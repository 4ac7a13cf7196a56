#!/bin/sh
# deb: remove, then purge if asked to; rpm: 0 for a removal, 1 for an upgrade
set -e
case "$1" in
  remove | 0)
    rm -rf /usr/lib/coresteer-backend
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    ;;
  purge) # the database is the administrator's
    rm -rf /var/lib/coresteer-backend /var/log/coresteer
    ! getent passwd coresteer >/dev/null || userdel coresteer
    ! getent group coresteer >/dev/null || groupdel coresteer
    [ ! -d /etc/coresteer ] || rmdir --ignore-fail-on-non-empty /etc/coresteer # the agent's package may be there
    ;;
esac
