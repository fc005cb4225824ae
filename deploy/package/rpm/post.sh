if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # 1: first installation; 2: upgrade.
    if [ "$1" = 1 ]; then systemctl enable --now interflow; else systemctl try-restart interflow; fi
fi
