"""Serves a folder with byte ranges, and below /live a playlist of it whose window moves a segment every second."""

import os
import re
import sys
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

BEGUN = []
KINDS = {".m3u8": "application/vnd.apple.mpegurl", ".mpd": "application/dash+xml", ".ts": "video/mp2t", ".mp4": "video/mp4"}


class Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind, fields=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        for name, value in fields:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def live(self, playlist):
        lines = playlist.decode().splitlines()
        head = [l for l in lines if l.startswith("#EXT-X-TARGETDURATION") or l.startswith("#EXT-X-VERSION")]
        pairs = [(l, lines[i + 1]) for i, l in enumerate(lines) if l.startswith("#EXTINF")]
        BEGUN.append(time.time())
        first = min(int(time.time() - BEGUN[0]), max(0, len(pairs) - 4))
        window = pairs[first : first + 4]
        end = ["#EXT-X-ENDLIST"] if first + 4 >= len(pairs) else []
        text = ["#EXTM3U", *head, f"#EXT-X-MEDIA-SEQUENCE:{first}", *[l for pair in window for l in pair], *end]
        return "\n".join(text).encode() + b"\n"

    def do_GET(self):
        path = self.path.split("?")[0]
        is_live = path.startswith("/live/")
        file = "." + (path[5:] if is_live else path)
        if not os.path.isfile(file):
            return self.answer(404, b"", "text/plain")
        with open(file, "rb") as f:
            body = f.read()
        kind = KINDS.get(os.path.splitext(file)[1], "application/octet-stream")
        if is_live and file.endswith(".m3u8"):
            return self.answer(200, self.live(body), kind)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, body, kind, [("ETag", '"1"')])
        first = int(asked[1])
        last = min(int(asked[2] or len(body)), len(body) - 1)
        if first > last:
            return self.answer(416, b"", kind)
        fields = [("Content-Range", f"bytes {first}-{last}/{len(body)}"), ("ETag", '"1"')]
        self.answer(206, body[first : last + 1], kind, fields)

    do_HEAD = do_GET


os.chdir(sys.argv[1])
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
