"""Sends long bodies through the proxy, looks at each byte of them, and at the memory that the proxy takes meanwhile."""
import http.server
import socket
import socketserver
import ssl
import sys
import threading
import time

BLOCK = bytes((i * i * 31 + (i >> 8)) & 0xFF for i in range(1 << 20))
WARM_UP = 256 << 20
# What a long body may cost beyond a short one: the recorder may let its queue fill up.
GROWTH = 64 << 20


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.path.rsplit("/", 1)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        for at in range(0, length, len(BLOCK)):
            self.wfile.write(BLOCK[: length - at])

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        answer = str(check(self.rfile.read1, length)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def check(read, length):
    """How many bytes came; the first that is wrong ends it."""
    got, twice = 0, memoryview(BLOCK + BLOCK)
    while got < length:
        data = read(1 << 20)
        at = got % len(BLOCK)
        if not data or twice[at : at + len(data)] != data:
            break
        got += len(data)
    return got


def origin(chain, key):
    plain = Server(("127.0.0.1", 0), Origin)
    secure = Server(("127.0.0.1", 0), Origin)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    print(f"plain {plain.server_port} secure {secure.server_port}", flush=True)
    secure.serve_forever()


def memory(pid):
    """The most that was resident so far, in bytes."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise SystemExit("the proxy is gone")


def connect(proxy, port, ca):
    raw = socket.create_connection(("127.0.0.1", proxy), 120)
    if not ca:
        return raw, f"http://origin.test:{port}"
    raw.sendall(f"CONNECT origin.test:{port} HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode())
    if b" 200 " not in raw.recv(4096):
        raise SystemExit("the tunnel was refused")
    return ssl.create_default_context(cafile=ca).wrap_socket(raw, server_hostname="origin.test"), ""


def exchange(proxy, port, ca, upload, length):
    """How many bytes passed as they should."""
    wire, start = connect(proxy, port, ca)
    method, path, fields = ("POST", "/", f"Content-Length: {length}\r\n") if upload else ("GET", f"/{length}", "")
    wire.sendall(f"{method} {start}{path} HTTP/1.1\r\nHost: origin.test:{port}\r\n{fields}\r\n".encode())
    if upload:
        for at in range(0, length, len(BLOCK)):
            wire.sendall(BLOCK[: length - at])
    answer = wire.makefile("rb")
    if b" 200 " not in answer.readline():
        raise SystemExit("no 200")
    while answer.readline() != b"\r\n":
        pass
    return int(answer.read1(100)) if upload else check(answer.read1, length)


def client(pid, proxy, plain, secure, ca, length):
    failed = False
    for name, port, trusted in (("plain", int(plain), None), ("intercepted", int(secure), ca)):
        for upload in (False, True):
            exchange(int(proxy), port, trusted, upload, WARM_UP)
            before, begun = memory(pid), time.monotonic()
            passed = exchange(int(proxy), port, trusted, upload, int(length))
            seconds, grown = time.monotonic() - begun, memory(pid) - before
            fine = passed == int(length) and grown <= GROWTH
            failed |= not fine
            print(f"large: {name} {'upload' if upload else 'download'}: {passed} of {length} bytes in {seconds:.0f} s, "
                  f"{before >> 20} MiB resident before, {grown >> 20} MiB more after{'' if fine else ': FAILED'}", flush=True)
    sys.exit(failed)


{"origin": origin, "client": client}[sys.argv[1]](*sys.argv[2:])
