"""``hoarfrost review``: a page on which people decide about the classes of a saved model."""

from __future__ import annotations

import argparse
from pathlib import Path

from hoarfrost.cli import options
from hoarfrost.errors import InputError
from hoarfrost.printing import printable

SUMMARY = "look at the classes of a model in a browser and decide"
DESCRIPTION = (
    "Open a page in the browser with the images of each class of MODEL. There you name, merge, reject and "
    "split classes, and move images. Every decision is saved at once. "
    "The page is served to this machine alone. Ctrl-C ends the review."
)
EXAMPLE = "example: hoarfrost review model2 --folder photos/unsorted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``review``."""
    parser.add_argument("model", metavar="MODEL", help="the model folder to change")
    parser.add_argument(
        "--folder", type=options.place, metavar="DIR", help="the images to show (default: those of the last review)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address of the page")
    parser.add_argument("--port", type=port, default=0, metavar="N", help="the port to serve (default: a free one)")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N (default: auto)")


def port(text: str) -> int:
    """A port that anybody may use, for argparse."""
    if not text.isascii() or not text.isdecimal() or not 1024 <= int(text[:6]) <= 65535:
        raise argparse.ArgumentTypeError(f"expected a number from 1024 to 65535, not '{text}'")
    return int(text)


def main(args: argparse.Namespace) -> int:
    """Serves the page until Ctrl-C."""
    import signal
    import threading

    from hoarfrost.cli.signals import Ended
    from hoarfrost.data.folder import check_folder_of_images
    from hoarfrost.models.description import read_classes
    from hoarfrost.review.server import Server
    from hoarfrost.review.session import Session, remember_folder, remembered_folder

    model = Path(args.model)
    read_classes(model)  # what is no model is refused before a page is opened
    cache = Path(f"{model.absolute()}.thumbnails")
    folder = args.folder or remembered_folder(cache)
    if folder is None:
        raise InputError(f"the folder of the images is needed: add --folder DIR, as in {EXAMPLE.partition(': ')[2]}")
    check_folder_of_images(folder)
    with Server(args.port) as server, Session(model, folder, cache, options.features_of(model), args.device) as session:
        remember_folder(cache, folder)
        server.serve(session)
        print(
            f"{printable(str(model))}: {server.address}\nEvery decision is saved at once. Ctrl-C ends the review.",
            flush=True,
        )
        if not args.no_browser:
            open_browser(server.first_address)
        try:
            while not threading.Event().wait(0.5):
                if session.judge.refused is not None and session.groups is None:
                    raise InputError(session.judge.refused)
        except KeyboardInterrupt as error:  # Ctrl-C is how a review ends well
            if isinstance(error, Ended) and error.number != signal.SIGINT:
                raise
        session.refresh()
        to_decide = [row for row in session.state()["classes"] if row["to_decide"]]
    decided = sum(row["decided"] for row in to_decide)
    text = f"\n{decided} of {len(to_decide)} new classes are decided" if to_decide else ""
    print(f"{text}\nNext: hoarfrost sort {options.quoted(model)} {options.quoted(folder)} --into DIR")
    return 0


def open_browser(address: str) -> None:
    """Opens a page in the browser of the desktop, if there is one; not in a browser of the terminal."""
    import os
    import sys
    import webbrowser

    has_desktop = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if has_desktop:
        webbrowser.open(address)
