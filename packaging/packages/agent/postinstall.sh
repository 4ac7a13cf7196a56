#!/bin/sh
# deb: configure …; rpm: 1 for an installation, 2 for an upgrade
set -e
for python in /usr/lib/coresteer-agent/python3.*/bin/python; do
  [ ! -x "$python" ] || "$python" -m compileall -q -j 0 "${python%/bin/python}/lib" /usr/lib/coresteer-agent/common
done
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart coresteer-agent.service # what is set stays set
fi
