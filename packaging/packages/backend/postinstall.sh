#!/bin/sh
# deb: configure …; rpm: 1 for an installation, 2 for an upgrade
set -e
systemd-sysusers coresteer.conf
chgrp coresteer /etc/coresteer/backend.toml
for python in /usr/lib/coresteer-backend/python3.*/bin/python; do
  [ ! -x "$python" ] || "$python" -m compileall -q -j 0 "${python%/bin/python}/lib" /usr/lib/coresteer-backend/common
done
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart coresteer-backend.service
fi
