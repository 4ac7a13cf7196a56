#!/bin/sh
# Runs the program with the distribution's newest Python for which this package has libraries.
for minor in @MINORS@; do
  python=@LIBRARIES@/python3.$minor/bin/python
  [ -x "$python" ] && exec "$python" -Im @MODULE@ "$@"
done
echo "@PROGRAM@ needs Python 3.11, 3.12 or 3.13 of the distribution, in /usr/bin." >&2
exit 1
