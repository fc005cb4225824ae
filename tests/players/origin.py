"""Serves a folder with byte ranges; below /live a playlist of it whose window moves a segment every second; below /ll one in parts, with
blocking reload and hints; below /dash a manifest whose media comes out of what is packaged already as time goes by."""

import functools
import os
import re
import sys
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

BEGUN = []
KINDS = {".m3u8": "application/vnd.apple.mpegurl", ".mpd": "application/dash+xml", ".ts": "video/mp2t", ".mp4": "video/mp4", ".html": "text/html", ".js": "text/javascript"}


LOW, DASH = {}, {}
PART = 0.5


@functools.cache
def fragments(path):
    """The initialization section of a file, and its fragments."""
    data, at, cuts = open(path, "rb").read(), 0, []
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        if kind in (b"moof", b"mfra"):
            cuts.append(at)
        at += size
    pieces = [data[a:b] for a, b in zip(cuts, cuts[1:] + [len(data)])]
    return data[: cuts[0]], [p for p in pieces if p[4:8] == b"moof"]


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

    def low_latency(self, name, query):
        """Parts of half a second, four to a segment, out of the fragments of ll/long.mp4 (low latency HLS, RFC 8216bis 6.2.5)."""
        init, chunks = fragments("ll/long.mp4")
        LOW.setdefault("begun", time.time() - 8)
        ready = lambda: min(int((time.time() - LOW["begun"]) / PART), len(chunks))
        if name == "init.mp4":
            return self.answer(200, init, "video/mp4")
        if name[0] in "ps" and name.endswith(".m4s"):
            number = int(name[1:-4])
            wanted = [number] if name[0] == "p" else range(number * 4, number * 4 + 4)
            while ready() <= max(wanted) < len(chunks):
                time.sleep(0.02)
            return self.answer(200, b"".join(chunks[i] for i in wanted if i < len(chunks)), "video/mp4")
        asked = {k: int(v) for k, v in re.findall(r"_HLS_(msn|part)=(\d+)", query)}
        if "msn" in asked:
            LOW["blocked"] = True
            until = time.time() + 5
            while ready() <= asked["msn"] * 4 + asked.get("part", 3) and ready() < len(chunks) and time.time() < until:
                time.sleep(0.02)
        n = ready()
        first, last = max(0, n // 4 - 6), n // 4
        text = ["#EXTM3U", "#EXT-X-VERSION:9", "#EXT-X-TARGETDURATION:2", f"#EXT-X-PART-INF:PART-TARGET={PART}"]
        text += [f"#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={PART * 3}", f"#EXT-X-MEDIA-SEQUENCE:{first}"]
        text += ['#EXT-X-MAP:URI="init.mp4"']
        for segment in range(first, last + 1):
            parts = range(segment * 4, min(segment * 4 + 4, n))
            if segment >= last - 2:
                text += [f'#EXT-X-PART:DURATION={PART},URI="p{i}.m4s",INDEPENDENT=YES' for i in parts]
            if segment < last:
                text += ["#EXTINF:2.0,", f"s{segment}.m4s"]
        text += [f'#EXT-X-PRELOAD-HINT:TYPE=PART,URI="p{n}.m4s"'] if n < len(chunks) else ["#EXT-X-ENDLIST"]
        return self.answer(200, "\n".join(text).encode() + b"\n", "application/vnd.apple.mpegurl")

    def dynamic(self, name):
        """A live manifest over the numbered segments of a folder."""
        if name != "live.mpd":
            return False
        DASH.setdefault("begun", time.time() - 16)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(DASH["begun"]))
        sets = ""
        for kind, codecs, more in [("v", "avc1.42c00d", 'width="320" height="180"'), ("a", "mp4a.40.2", 'audioSamplingRate="44100"')]:
            mime = "video/mp4" if kind == "v" else "audio/mp4"
            sets += f'<AdaptationSet id="{kind}" mimeType="{mime}" segmentAlignment="true"><SegmentTemplate timescale="1" duration="2" startNumber="1"'
            sets += f' initialization="{kind}-i.mp4" media="{kind}-$Number$.m4s"/>'
            sets += f'<Representation id="{kind}" codecs="{codecs}" bandwidth="100000" {more}/></AdaptationSet>'
        text = '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011" type="dynamic"'
        text += f' availabilityStartTime="{at}" minimumUpdatePeriod="PT2S" timeShiftBufferDepth="PT12S" suggestedPresentationDelay="PT6S"'
        text += f' minBufferTime="PT2S"><BaseURL>/longer/</BaseURL><Period id="p" start="PT0S">{sets}</Period>'
        text += '<UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-iso:2014" value="/time"/></MPD>'
        self.answer(200, text.encode(), "application/dash+xml")
        return True

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/time":
            return self.answer(200, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()).encode(), "text/plain")
        if path == "/ll/blocked":
            return self.answer(200, str(LOW.get("blocked", False)).encode(), "text/plain")
        if path.startswith("/ll/") and path != "/ll/long.mp4":
            return self.low_latency(path[4:], query)
        if path.startswith("/dash/") and self.dynamic(path[6:]):
            return None
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


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Players that leave in the middle are nothing to tell of."""


os.chdir(sys.argv[1])
server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
