"""A stream of windows whose workers report their state with every row."""

from torch.utils.data import IterableDataset, get_worker_info


class StateReportingStream(IterableDataset):
    """Stream that yields worker, row and state, and can start from the state of each worker.

    torchdata's StatefulDataLoader does the same: each worker's copy of a stream has its own state.
    """

    def __init__(self, stream, states=None):
        self.stream, self.states = stream, states

    def __iter__(self):
        worker = get_worker_info().id
        if self.states is not None:
            self.stream.load_state_dict(self.states[worker])
        for item in self.stream:
            yield worker, item["row"], self.stream.state_dict()
