"""view(): a page over a dataset, for a browser on this machine, until Ctrl-C."""

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gristmill.core.errors import GristmillError, OutputError
from gristmill.core.manifest import read_record
from gristmill.views.viewer.opened import Opened
from gristmill.views.viewer.request import Guard
from gristmill.views.viewer.server import ViewServer, assets
from gristmill.views.viewer.viewer_folder import Keeping

SECONDS_BETWEEN_LOOKS = 0.2
SWITCH_SECONDS = 0.001


class Viewing:
    """One that is served: where, and what to know of it."""

    def __init__(self, server: ViewServer, key: str, note: str | None) -> None:
        self.server, self.note = server, note
        self.address = self._address(key)

    def address_for_once(self) -> str:
        return self._address(self.server.guard.ticket())

    def _address(self, key: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/?key={key}"


@contextmanager
def served(folder: str | os.PathLike[str], port: int = 0) -> Iterator[Viewing]:
    """Ready to answer, and answering once `server.serve_forever()` runs. Port 0 is any that is free."""
    place = Path(os.path.abspath(os.path.expanduser(folder)))
    read_record(place)  # beside what is no dataset, nothing is left
    keeping = Keeping(place)
    try:
        opened = Opened(place, keeping)
        key = keeping.key()
        with _listening(port, opened, Guard(key)) as server:
            with suppress(GristmillError):  # each request that needs it will tell
                opened.now().dataset.tokenizer.decode([])
            opened.start()
            try:
                yield Viewing(server, key, keeping.note)
            finally:
                opened.close()
    finally:
        keeping.close()


def _listening(port: int, opened: Opened, guard: Guard) -> ViewServer:
    page = assets()
    try:
        return ViewServer(port, opened, guard, page)
    except OSError as error:
        raise OutputError(f"cannot listen on port {port}: {error.strerror}. Try another --port, or none.") from None


def view(
    folder: str | os.PathLike[str], tell: Callable[[Viewing], None], *, port: int = 0, opens_browser: bool = True
) -> None:
    """Serves until Ctrl-C. `tell` is called once, when there is an address."""
    # While the index is made, a request waits this long for its turn, at most: not five times as long.
    sys.setswitchinterval(SWITCH_SECONDS)
    with suppress(KeyboardInterrupt), served(folder, port) as viewing:
        tell(viewing)
        if opens_browser and _has_screen():
            threading.Thread(target=webbrowser.open, args=(viewing.address_for_once(),), daemon=True).start()
        viewing.server.serve_forever(SECONDS_BETWEEN_LOOKS)


def _has_screen() -> bool:
    """Else a browser for terminals would take this one."""
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
