#!/bin/sh
# deb: configure …; rpm: 1 for an installation, 2 for an upgrade
set -e
systemd-sysusers coresteer.conf
config=/etc/coresteer/backend.toml
if [ -f "$config" ] && [ "$(stat -c %G "$config")" = root ]; then # else an administrator has decided otherwise
  chgrp coresteer "$config"
fi
for python in /usr/lib/coresteer-backend/python3.*/bin/python; do
  [ ! -x "$python" ] || "$python" -m compileall -q -j 0 "${python%/bin/python}/lib" /usr/lib/coresteer-backend/common
done
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart coresteer-backend.service ||
    echo "The backend does not start yet: if \`journalctl -u coresteer-backend\` asks for it, run \`coresteer migrate\` (docs/UPGRADE.md). It then starts by itself." >&2
fi
