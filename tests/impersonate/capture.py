#!/usr/bin/env python3
"""What real clients send first, beside what Interflow sends in their place: JA3, JA4 and Akamai's text of each, as read
from the bytes at an origin of this script's own.

    capture.py INTERFLOW        a binary with the feature impersonate; clients that are not installed are skipped
"""
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

HOST = "origin.test"
work = tempfile.TemporaryDirectory()
place = lambda name: os.path.join(work.name, name)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def u16(data, at):
    return data[at] << 8 | data[at + 1]


def grease(number):
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 0xFF


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else "0" * 12


def hello(record):
    """JA3 text and JA4 of a ClientHello, written without the product's own code."""
    at = 5 + 4
    version = u16(record, at)
    at += 34
    at += 1 + record[at]
    length = u16(record, at)
    numbers = lambda data: [n for n in (u16(data, i) for i in range(0, len(data) - 1, 2)) if not grease(n)]
    ciphers = numbers(record[at + 2 : at + 2 + length])
    at += 2 + length
    at += 1 + record[at]
    end, at = at + 2 + u16(record, at), at + 2
    found = {}
    while at < end:
        kind, length = u16(record, at), u16(record, at + 2)
        found[kind] = record[at + 4 : at + 4 + length]
        at += 4 + length
    kinds = [k for k in found if not grease(k)]
    groups = numbers(found.get(10, b"\0\0")[2:])
    points = list(found.get(11, b"\0")[1:])
    signatures = numbers(found.get(13, b"\0\0")[2:])
    alpn = found.get(16, b"")
    first = alpn[3 : 3 + alpn[2]].decode() if alpn else ""
    dash = lambda list_: "-".join(map(str, list_))
    ja3 = f"{version},{dash(ciphers)},{dash(kinds)},{dash(groups)},{dash(points)}"
    hexes = lambda list_: ",".join(f"{n:04x}" for n in list_)
    ja4 = "t{}{}{:02}{:02}{}_{}_{}".format(
        "13" if 0x0304 in numbers(found.get(43, b"\0")[1:]) else "12",
        "d" if 0 in found else "i",
        len(ciphers),
        len(kinds),
        first[0] + first[-1] if first else "00",
        sha(hexes(sorted(ciphers))),
        sha(hexes(sorted(k for k in kinds if k not in (0, 16))) + ("_" + hexes(signatures) if signatures else "")),
    )
    return ja3, ja4


LETTERS = {1: "a", 2: "m", 3: "m", 4: "p", 5: "p", 6: "s", 7: "s"}


def opening(data):
    """Akamai's text of an HTTP/2 opening, and how its first request is marked; None until that has come."""
    settings, window, priorities, at = [], "00", [], 24
    while at + 9 <= len(data):
        length = int.from_bytes(data[at : at + 3], "big")
        kind, flags, stream = data[at + 3], data[at + 4], int.from_bytes(data[at + 5 : at + 9], "big")
        body = data[at + 9 : at + 9 + length]
        if len(body) < length:
            return None
        at += 9 + length
        if kind == 4 and not flags & 1 and not settings:
            settings = [f"{u16(body, i)}:{int.from_bytes(body[i + 2:i + 6], 'big')}" for i in range(0, length, 6)]
        elif kind == 8 and stream == 0 and window == "00":
            window = str(int.from_bytes(body, "big"))
        elif kind == 2:
            depends = int.from_bytes(body[:4], "big")
            priorities.append(f"{stream}:{depends >> 31}:{depends & 0x7FFFFFFF}:{body[4] + 1}")
        elif kind == 1:
            mark = f"stream {stream}, priority {body[:5].hex() if flags & 0x20 else 'none'}"
            block, order, i = body[5:] if flags & 0x20 else body, [], 0
            while i < len(block) and len(order) < 4:
                byte, value = block[i], True
                if byte & 0x80:
                    index, value = byte & 0x7F, False
                elif byte & 0x40:
                    index = byte & 0x3F
                elif byte & 0x20:
                    i += 1
                    while block[i - 1] & 0x1F == 0x1F and block[i] & 0x80:
                        i += 1
                    if block[i - 1] & 0x1F == 0x1F:
                        i += 1
                    continue
                else:
                    index = byte & 0x0F
                order.append(LETTERS.get(index, "?"))
                i += 1
                if value:
                    i += 1 + (block[i] & 0x7F)
            text = "|".join([";".join(settings), window, ",".join(priorities) or "0", ",".join(order)])
            return text, mark
    return None


class Origin(threading.Thread):
    """Takes connections, notes how each begins, and answers requests over HTTP/2 with 204."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(place("leaf.pem"), place("leaf.key"))
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.seen = []
        self.start()

    def run(self):
        while True:
            connection, _ = self.socket.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.settimeout(10)
        try:
            while True:
                record = connection.recv(16384, socket.MSG_PEEK)
                if not record:
                    return
                if len(record) >= 5 and len(record) >= 5 + u16(record, 3):
                    break
                time.sleep(0.01)
            ja3, ja4 = hello(record)
            tls = self.context.wrap_socket(connection, server_side=True)
            tls.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            data, opened = b"", None
            while opened is None:
                more = tls.recv(65536)
                if not more:
                    return
                data += more
                opened = opening(data)
            self.seen.append((ja3, ja4, *opened))
            # 204, by its index in a field of the static table.
            stream = int(opened[1].split()[1].rstrip(","))
            tls.sendall(bytes([0, 0, 1, 1, 5]) + stream.to_bytes(4, "big") + b"\x89")
            while tls.recv(65536):
                pass
        except (OSError, ValueError, IndexError):
            pass

    def take(self):
        """What the last visitor showed."""
        for _ in range(200):
            if self.seen:
                shown, self.seen = self.seen[-1], []
                return shown
            time.sleep(0.05)
        return None


def interflow(binary, like, port, ca):
    """Interflow, greeting the origin as the config says; its proxy's address."""
    config, home = place(f"{like}.toml"), place(f"home-{like}")
    with open(config, "w") as file:
        file.write(
            f'[proxy]\nlisten = ["127.0.0.1:0"]\n[gateway]\nlisten = []\n[admin]\nlisten = "127.0.0.1:0"\n'
            f'[upstream]\nextra_ca = ["{ca}"]\nhosts = {{ "{HOST}" = ["127.0.0.1"] }}\n'
            f'[[upstream.fingerprint]]\nhosts = ["*"]\nprofile = "{like}"\n'
        )
    process = subprocess.Popen(
        [binary, "run", "-c", config, "--no-record"],
        env=dict(os.environ, INTERFLOW_DATA_DIR=home, NO_COLOR="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "proxy" in line and "127.0.0.1:" in line:
            threading.Thread(target=lambda: list(process.stdout), daemon=True).start()
            return process, "127.0.0.1:" + line.split("127.0.0.1:")[1].split()[0].strip("/,;")
    sys.exit("Interflow did not start:\n" + "".join(lines))


def curl(port, proxy=None):
    way = ["-x", f"http://{proxy}"] if proxy else ["--resolve", f"{HOST}:{port}:127.0.0.1"]
    subprocess.run(["curl", "-sk", "-m", "10", *way, f"https://{HOST}:{port}/"], stdout=subprocess.DEVNULL)


def chromium(port, proxy=None):
    way = [f"--proxy-server=http://{proxy}"] if proxy else ["--no-proxy-server", f"--host-resolver-rules=MAP {HOST} 127.0.0.1"]
    profile = tempfile.mkdtemp(dir=work.name)
    command = [
        shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors",
        f"--user-data-dir={profile}", "--disable-background-networking", "--dump-dom", *way, f"https://{HOST}:{port}/",
    ]
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=40)
    except subprocess.TimeoutExpired:
        pass


def same(real, ours, shuffled):
    """Where the two differ."""
    order = lambda ja3: ",".join(
        "-".join(sorted(part.split("-"), key=int)) if i == 2 and part else part for i, part in enumerate(ja3.split(","))
    )
    pairs = zip(("JA3", "JA4", "Akamai", "first request"), real, ours)
    return [
        f"{name}: {a}\n      not {b}"
        for name, a, b in pairs
        if (order(a) != order(b) if name == "JA3" and shuffled else a != b)
    ]


def table():
    """Name, JA3 (MD5; none where it changes), JA4 and Akamai's text of each row of docs/guides/interception.md."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/guides/interception.md")
    above = {}
    for line in open(page, encoding="utf-8"):
        cells = [c.strip().strip("`").replace("\0", "|") for c in line.replace("\\|", "\0").split("|")]
        if len(cells) != 8 or not cells[4].startswith(("t13", "the same")) or not line.startswith("| `"):
            continue
        for n in (3, 4, 5):
            cells[n] = above[n] if cells[n] == "the same" else cells[n]
        above = cells
        yield cells[1], cells[3] if len(cells[3]) == 32 else None, cells[4], cells[5]


def named(binary, origin):
    """Sends each profile, and compares it with the page."""
    wrong = 0
    for name, ja3, ja4, akamai in table():
        process, proxy = interflow(binary, name, origin.port, place("ca.pem"))
        curl(origin.port, proxy)
        ours = origin.take()
        process.terminate()
        process.wait()
        text = ours and [ja3 and hashlib.md5(ours[0].encode()).hexdigest(), ours[1], ours[2]]
        good = text == [ja3, ja4, akamai]
        wrong += not good
        print(f"  profile = \"{name}\": " + ("as docs/guides/interception.md says" if good else f"{text}, not {[ja3, ja4, akamai]}"))
    return wrong


def main():
    binary = sys.argv[1]
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=Capture CA", "-keyout", place("ca.key"), "-out", place("ca.pem"),
        "-addext", "basicConstraints=critical,CA:TRUE")
    with open(place("ext"), "w") as file:
        file.write(f"subjectAltName=DNS:{HOST}\n")
    run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={HOST}",
        "-keyout", place("leaf.key"), "-out", place("leaf.csr"))
    run("openssl", "x509", "-req", "-in", place("leaf.csr"), "-CA", place("ca.pem"), "-CAkey", place("ca.key"), "-CAcreateserial",
        "-days", "2", "-extfile", place("ext"), "-out", place("leaf.pem"))
    failed = 0
    for client, visit, profile, shuffled in [("curl", curl, "curl", False), ("chromium", chromium, "chrome", True)]:
        if not shutil.which(client):
            print(f"{client}: not installed, skipped")
            continue
        version = subprocess.run([client, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
        origin = Origin()
        visit(origin.port)
        real = origin.take()
        if real is None:
            sys.exit(f"{client} did not come to the origin")
        print(f"{version}\n  JA3 {real[0]}\n  JA4 {real[1]}\n  Akamai {real[2]}\n  first request: {real[3]}")
        for like, by in [(profile, curl), ("mirror", visit)]:
            process, proxy = interflow(binary, like, origin.port, place("ca.pem"))
            by(origin.port, proxy)
            ours = origin.take()
            process.terminate()
            process.wait()
            wrong = same(real, ours, shuffled) if ours else ["nothing came"]
            # A client whose priority no text tells is mirrored in all but that.
            if like == "mirror":
                wrong = [w for w in wrong if not w.startswith("first request")]
            failed += bool(wrong)
            print(f"  profile = \"{like}\": " + ("; ".join(wrong) if wrong else "the same"))
    print("each profile")
    failed += named(binary, Origin())
    sys.exit(1 if failed else 0)


main()
