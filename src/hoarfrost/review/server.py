"""The server of the page: requests that know the secret address, from this machine and from the page itself.

All that is served lies below a random token, which is part of every address. A cookie would do less: browsers send the
cookies of 127.0.0.1 to every port, so to the servers of other users of the machine too. Images are asked for by their
position in a list, and no request names a file. Whatever does not fit gets an empty answer.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import secrets
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hoarfrost.data.unsure import UNSURE
from hoarfrost.errors import InputError
from hoarfrost.reading import Form, misfit
from hoarfrost.review.pictures import Gone, Pictures
from hoarfrost.review.session import Session, Stale

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = "127.0.0.1"
MOST_BODY = 64 << 10
"""bytes of a request; a decision has some hundred"""
HEARD = 64 * MOST_BODY
"""bytes after which no more is read"""

PAGE = {
    "": ("index.html", "text/html; charset=utf-8"),
    "review.css": ("review.css", "text/css; charset=utf-8"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

DECISION: Form = {
    "version": str,
    "decision": {
        "verb": str,
        "class?": int,
        "into?": int,
        "name?": str,
        "images?": [int],
        "groups?": [[int]],
        "generation?": int,
    },
}
VERBS = frozenset({"rename", "merge", "reject", "move", "split", "undo", "redo"})

NEEDED = "hoarfrost review needs Starlette and uvicorn: pip install 'starlette>=0.40' 'uvicorn>=0.30'"


def application(session: Session, port: int, token: str, tickets: set[str]) -> Starlette:
    """What answers requests; a ticket is exchanged once for the address of the page."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.responses import JSONResponse, RedirectResponse, Response
    from starlette.routing import Route

    content = {name: files(__package__).joinpath("page", file).read_bytes() for name, (file, _) in PAGE.items()}
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}
    origins = {f"http://{host}" for host in hosts}

    def allowed(request: Request) -> bool:
        """Whether a request was sent to this very server, and not by a page of another origin."""
        headers = request.headers
        own = headers.getlist("host") and set(headers.getlist("host")) <= hosts
        origin = headers.get("origin")
        if not own or (origin is not None and origin != f"http://{headers['host']}"):
            return False
        if request.method == "POST":
            return origin in origins
        site, mode = headers.get("sec-fetch-site", "same-origin"), headers.get("sec-fetch-mode", "")
        return site in ("same-origin", "none") or mode == "navigate"

    def guarded(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            if not allowed(request):
                return Response(status_code=403)
            given = request.path_params.get("token", "")
            if not hmac.compare_digest(given.encode(), token.encode()):
                return Response(status_code=404)
            return await answer(request)

        return answered

    async def page(request: Request) -> Response:
        name = request.path_params.get("file", "")
        return Response(content[name], media_type=PAGE[name][1]) if name in PAGE else Response(status_code=404)

    async def state(request: Request) -> Response:
        def found() -> dict[str, Any] | None:
            session.refresh()
            since = f"{session.version}-{session.round}-{session.judge.busy}-{session.judge.progress}"
            if request.query_params.get("since") == since:
                return None
            return {**session.state(), "since": since}

        told = await run_in_threadpool(found)
        return Response(status_code=204) if told is None else JSONResponse(told)

    async def images(request: Request) -> Response:
        group = number(request.path_params["group"])
        if group is None:
            return Response(status_code=404)
        session.quiet.clear()
        try:
            told = await run_in_threadpool(session.images, group, whole="whole" in request.query_params)
        finally:
            session.quiet.set()
        return Response(status_code=404) if told is None else JSONResponse(told)

    async def split(request: Request) -> Response:
        group, into = number(request.path_params["group"]), number(request.query_params.get("into", "2"))
        if group is None or into not in (2, 3):
            return Response(status_code=404)
        try:
            return JSONResponse(await run_in_threadpool(session.split_groups, group, into))
        except InputError as error:
            return JSONResponse({"refused": str(error)}, status_code=422)

    async def thumbnail(request: Request) -> Response:
        return await picture(request, lambda pictures, index: (pictures.thumbnail(index), "image/jpeg"))

    async def original(request: Request) -> Response:
        return await picture(request, Pictures.original)

    async def picture(request: Request, read: Callable[[Pictures, int], tuple[bytes, str]]) -> Response:
        pictures, index = session.pictures, number(request.path_params["index"])
        if pictures is None or index is None:
            return Response(status_code=404)
        session.quiet.clear()
        try:
            found, kind = await run_in_threadpool(read, pictures, index)
        except Gone:
            return Response(status_code=404)
        finally:
            session.quiet.set()
        return Response(found, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    async def decide(request: Request) -> Response:
        body = await received(request)
        if body is None:
            return Response(status_code=413)
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return Response(status_code=400)
        if misfit(told, DECISION) or told["decision"]["verb"] not in VERBS:
            return Response(status_code=400)
        try:
            await run_in_threadpool(session.decide, told["version"], told["decision"])
        except Stale:
            return JSONResponse(await run_in_threadpool(session.state), status_code=409)
        except InputError as error:
            return JSONResponse({"refused": str(error)}, status_code=422)
        except OSError as error:
            return JSONResponse({"refused": f"nothing was saved: {error.strerror or error}"}, status_code=507)
        return JSONResponse(await run_in_threadpool(session.state))

    async def begin(request: Request) -> Response:
        ticket = request.path_params["ticket"]
        if not allowed(request):
            return Response(status_code=403)
        if ticket not in tickets:
            return Response(status_code=404)
        tickets.discard(ticket)
        return RedirectResponse(f"/{token}/", status_code=303)

    async def nothing(_request: Request, _error: Exception) -> Response:
        """In the place of the router's words for an unknown address or method."""
        return Response(status_code=404)

    made = Starlette(
        routes=[
            Route("/open/{ticket}", begin),
            Route("/{token}/", guarded(page)),
            Route("/{token}/state", guarded(state)),
            Route("/{token}/images/{group}", guarded(images)),
            Route("/{token}/split/{group}", guarded(split)),
            Route("/{token}/thumbnail/{index}", guarded(thumbnail)),
            Route("/{token}/original/{index}", guarded(original)),
            Route("/{token}/decide", guarded(decide), methods=["POST"]),
            Route("/{token}/{file}", guarded(page)),
        ],
        middleware=[Middleware(Headed)],
        exception_handlers={404: nothing, 405: nothing},
    )
    made.router.redirect_slashes = False
    return made


class Headed:
    """Adds the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                more = [(key.lower().encode(), value.encode()) for key, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *((k, v) for k, v in more if k not in own)]
            await send(message)

        await self.app(scope, receive, headed)


def number(text: str) -> int | None:
    """A position or an id in an address; -1 for the unsure images, -2 for those that are possibly new.

    >>> number("17"), number("unsure"), number("1e3"), number("9" * 5000)
    (17, -1, None, None)
    """
    if text == UNSURE:
        return -1
    if text == "possibly-new":
        return -2
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


async def received(request: Request) -> bytes | None:
    """The body of a request; None where it is too long.

    Some more is read and forgotten then: whoever is still sending would not hear the answer.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= MOST_BODY:
            parts.append(part)
        elif size > HEARD:
            break
    return b"".join(parts) if size <= MOST_BODY else None


class Server:
    """Holds a port, and serves one session from a thread of its own until the block ends."""

    def __init__(self, port: int = 0) -> None:
        try:
            import starlette  # noqa: F401
            import uvicorn
        except ImportError:
            raise InputError(NEEDED) from None
        self._uvicorn, self.socket = uvicorn, bound(port)
        self.port = int(self.socket.getsockname()[1])
        self.token, ticket = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.tickets = {ticket}
        self.address = f"http://{HOST}:{self.port}/{self.token}/"
        self.first_address = f"http://{HOST}:{self.port}/open/{ticket}"
        """leads to the page once: other users of a machine can see with what a browser is started"""
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def serve(self, session: Session) -> None:
        """Answers from now on."""
        config = self._uvicorn.Config(
            application(session, self.port, self.token, self.tickets),
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self.socket.listen()
        self._server = self._uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self.socket],), daemon=True)
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        if self._server is not None and self._thread is not None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of requests that are not waited for
            self._server.should_exit = True
            self._thread.join(3)
        self.socket.close()


def bound(port: int) -> socket.socket:
    """A socket of this machine alone; of a free port where that is 0."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port and hasattr(socket, "SO_REUSEADDR") and sys.platform != "win32":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of a server that has just ended
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise InputError(
            f"port {port} cannot be used ({error.strerror}): choose another --port, or leave it out"
        ) from None
    return made
