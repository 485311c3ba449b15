"""`softmaxdyn play`: the playground, a page on which policies are dragged, served to the browser of this machine."""

from __future__ import annotations

import errno
import signal
import webbrowser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

from softmaxdyn.cli.group import main
from softmaxdyn.errors import InputError

PAGE = Path(__file__).parents[1] / "playground"


@main.command()
@click.argument("link", default="")
@click.option("--port", type=int, default=0, help="Of 127.0.0.1; by default a free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def play(link: str, port: int, no_browser: bool) -> None:
    """Drag policies, set rewards, take steps: the playground, in the browser. Ctrl-C ends it.

    LINK is one copied from the page, of this machine or another, or its part from # on; quote it.
    """
    state = fragment(link)
    with serve(port) as server:
        address = f"http://127.0.0.1:{server.server_port}/{state}"
        click.echo(f"the playground is at {address} (Ctrl-C ends it)")
        if not no_browser:
            webbrowser.open(address)
        wait(server)


def fragment(link: str) -> str:
    """A link from its # on, which holds the state of the page. Raises InputError where there is none."""
    start, mark, state = link.partition("#")
    if start and not mark:
        raise InputError(
            f"{link[:60]!r} has no part after #; wanted a link of the playground, in quotes, such as '#z=0,0,0'"
        )
    return mark + state


def serve(port: int) -> ThreadingHTTPServer:
    """A server of the page on 127.0.0.1. Raises InputError for a port that is taken, forbidden or none at all."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port is {port}; wanted one in [0, 65535], 0 for a free one")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(PAGE)))
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise InputError(f"--port {port} {reason}; pass another, or none for a free one") from None


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def wait(server: ThreadingHTTPServer) -> None:
    """Serves until Ctrl-C, which here is the ordinary end: no message, exit code 0."""
    signal.set_wakeup_fd(-1)  # the command line's own handler would complain half a second later
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
