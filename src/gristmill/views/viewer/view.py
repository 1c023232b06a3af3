"""view(): serve a web page for browsing a dataset until Ctrl-C. Only browsers on this machine can open the page."""

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gristmill.core.errors import GristmillError, OutputError
from gristmill.core.manifest import read_record
from gristmill.views.viewer.current_dataset import CurrentDataset
from gristmill.views.viewer.request import Guard
from gristmill.views.viewer.server import ViewServer, load_assets
from gristmill.views.viewer.viewer_folder import ViewerFolder

POLL_SECONDS = 0.2
THREAD_SWITCH_SECONDS = 0.001


class RunningViewer:
    """A viewer that is ready to serve: its server, its address and an optional note for the user."""

    def __init__(self, server: ViewServer, key: str, note: str | None) -> None:
        self.server, self.note = server, note
        self.address = self._address(key)

    def one_time_address(self) -> str:
        """Return an address that can be opened once."""
        return self._address(self.server.guard.issue_ticket())

    def _address(self, key: str) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/?key={key}"


@contextmanager
def open_viewer(folder: str | os.PathLike[str], port: int = 0) -> Iterator[RunningViewer]:
    """Open a dataset and listen on a port. Requests are answered once `server.serve_forever()` runs.

    Port 0 selects a free port. Raises DatasetError if the folder has no valid dataset, and OutputError if the port is
    not available.
    """
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    read_record(path)  # raises before a viewer folder is created beside a folder that is not a dataset
    viewer_folder = ViewerFolder(path)
    try:
        current = CurrentDataset(path, viewer_folder)
        key = viewer_folder.load_or_create_key()
        with _listen(port, current, Guard(key)) as server:
            with suppress(GristmillError):  # each request that needs the tokenizer reports the error
                current.get().dataset.tokenizer.decode([])
            current.start()
            try:
                yield RunningViewer(server, key, viewer_folder.note)
            finally:
                current.close()
    finally:
        viewer_folder.close()


def _listen(port: int, current: CurrentDataset, guard: Guard) -> ViewServer:
    assets = load_assets()
    try:
        return ViewServer(port, current, guard, assets)
    except OSError as error:
        raise OutputError(
            f"cannot listen on port {port}: {error.strerror}. Choose another --port, or omit --port to use a free port."
        ) from None


def view(
    folder: str | os.PathLike[str],
    on_ready: Callable[[RunningViewer], None],
    *,
    port: int = 0,
    opens_browser: bool = True,
) -> None:
    """Serve a dataset until Ctrl-C.

    `on_ready` is called once, when the address is known. With `opens_browser`, a browser is opened if a display is
    available.
    """
    # A request waits at most this long for the thread that builds the index. Python's default is 5 ms.
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    with suppress(KeyboardInterrupt), open_viewer(folder, port) as viewer:
        on_ready(viewer)
        if opens_browser and _has_display():
            threading.Thread(target=webbrowser.open, args=(viewer.one_time_address(),), daemon=True).start()
        viewer.server.serve_forever(POLL_SECONDS)


def _has_display() -> bool:
    """Return True if a graphical browser is probably available. A text browser would take over this terminal."""
    names = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform == "darwin" or any(os.environ.get(name) for name in names)
