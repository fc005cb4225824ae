getent passwd interflow >/dev/null || useradd --system --user-group --home-dir /var/lib/interflow --shell /sbin/nologin interflow
