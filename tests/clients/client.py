"""One Python client against the origin: plain, intercepted, a body up and down; proxy and trust come from the environment."""
import asyncio
import os
import sys

PLAIN, SECURE = os.environ["PLAIN"], os.environ["SECURE"]
BODY = b"0123456789" * 10_000


def by_requests():
    import requests

    with requests.Session() as session:
        assert session.get(PLAIN + "/bytes/100", timeout=20).content.__len__() == 100
        for _ in range(2):
            assert session.post(SECURE + "/echo", data=BODY, timeout=20).content == BODY
        events = session.get(SECURE + "/sse?count=3", stream=True, timeout=20).iter_lines()
        assert sum(line.startswith(b"data:") for line in events) == 3


def by_httpx():
    import ssl

    import httpx

    trust = ssl.create_default_context()
    for http2 in (False, True):
        with httpx.Client(http2=http2, verify=trust, timeout=20) as client:
            assert len(client.get(PLAIN + "/bytes/100").content) == 100
            answer = client.post(SECURE + "/echo", content=BODY)
            assert answer.content == BODY
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1"), answer.http_version


async def by_aiohttp():
    import aiohttp

    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(PLAIN + "/bytes/100") as answer:
            assert len(await answer.read()) == 100
        async with session.post(SECURE + "/echo", data=BODY) as answer:
            assert await answer.read() == BODY
        async with session.ws_connect(SECURE + "/ws") as socket:
            await socket.send_str("hello")
            assert (await socket.receive()).data == "hello"


async def by_websockets():
    from websockets.asyncio.client import connect

    for url in (PLAIN, SECURE):
        async with connect(url.replace("http", "ws", 1) + "/ws") as socket:
            for message in ("hello", b"\0" * 100_000):
                await socket.send(message)
                assert await socket.recv() == message


def by_grpc():
    import grpc

    with open(os.environ["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"], "rb") as roots:
        trust = grpc.ssl_channel_credentials(roots.read())
    with grpc.secure_channel(SECURE.removeprefix("https://"), trust) as channel:
        # The origin sends the message back, and the status in trailers.
        call = channel.unary_unary("/grpc/Echo")
        for message in (b"hello", b"x" * 100_000):
            assert call(message, timeout=20) == message


work = globals()["by_" + sys.argv[1]]
if asyncio.iscoroutinefunction(work):
    asyncio.run(asyncio.wait_for(work(), 40))
else:
    work()
print("fine")
