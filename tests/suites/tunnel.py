"""Listens on a free port and carries each connection through a proxy's CONNECT: `tunnel.py PROXY_PORT HOST:PORT`."""
import socket
import sys
import threading

proxy, authority = int(sys.argv[1]), sys.argv[2]


def carry(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()


def serve(client):
    far = socket.create_connection(("127.0.0.1", proxy))
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    far.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = far.recv(1)
        if not byte:
            return client.close()
        head += byte
    threading.Thread(target=carry, args=(client, far), daemon=True).start()
    carry(far, client)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
