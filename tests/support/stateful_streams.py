"""A stream that yields every row together with the state of the worker that read the row."""

from torch.utils.data import IterableDataset, get_worker_info


class StateReportingStream(IterableDataset):
    """Stream that yields (worker, row, state) and can resume from earlier states, one per worker.

    As in torchdata's StatefulDataLoader, the copy of the stream in each worker has its own state.
    """

    def __init__(self, stream, states=None):
        self.stream, self.states = stream, states

    def __iter__(self):
        worker = get_worker_info().id
        if self.states is not None:
            self.stream.load_state_dict(self.states[worker])
        for item in self.stream:
            yield worker, item["row"], self.stream.state_dict()
