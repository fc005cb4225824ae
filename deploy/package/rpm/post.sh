if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # 1: first installation, where the system's presets decide whether the service is enabled; 2: upgrade.
    if [ "$1" = 1 ]; then systemctl preset interflow; else systemctl try-restart interflow; fi
fi
