# Recordings, CA and tokens in /var/lib/interflow are kept.
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
