# 0: the last version is removed.
if [ "$1" = 0 ] && [ -d /run/systemd/system ]; then systemctl disable --now interflow; fi
