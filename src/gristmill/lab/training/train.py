"""train(): train a model on a dataset and record the loss curves."""

import os
from collections.abc import Sequence

from gristmill.core.names import printable
from gristmill.dataset.dataset import open_dataset
from gristmill.lab.training.faults import choose_device, explain_training_errors
from gristmill.lab.training.feeds import ScoredWindow
from gristmill.lab.training.monitor import Log
from gristmill.lab.training.processes import ProcessGroup, StopSignal
from gristmill.lab.training.run import Run, make_run_facts, version_notes, with_objective
from gristmill.lab.training.run_folder import RunFolder
from gristmill.lab.training.train_config import TrainConfig
from gristmill.lab.training.train_result import Result, read_result


def train(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    resume: bool = False,
    log: Log = lambda _: None,
    command: str = "",
    frozen: Sequence[ScoredWindow] = (),
    save_best_model: bool = True,
) -> Result:
    """Train a model on the dataset in `folder` and write the run to `out`.

    `log` receives the progress lines, and `command` is recorded in run.json. Each evaluation scores the windows in
    `frozen` in addition to the validation split. Without `save_best_model`, no model is saved and the test split is not
    scored. With `resume`, a stopped run is continued. Raises KeyboardInterrupt if a signal stopped the training.
    """
    dataset = open_dataset(folder)
    config = with_objective(config or TrainConfig(), dataset)
    processes = ProcessGroup(choose_device(config))
    log = log if processes.is_first else lambda _: None
    run_folder = RunFolder(out)
    facts = make_run_facts(dataset, config, processes.device, command)
    checkpoint = run_folder.find_checkpoint(facts, resume=resume)
    if run_folder.is_done():
        log(f"the run in {printable(str(run_folder.path))} is already finished.")
        return read_result(run_folder.path)
    with explain_training_errors(config, run_folder.path), StopSignal(log) as stop:
        run = Run(dataset, config, processes, run_folder, frozen, save_best_model=save_best_model)
        for line in version_notes(run_folder, facts) if resume else ():
            log(line)
        processes.wait()
        if processes.is_first:
            run_folder.begin(facts, checkpoint)
        processes.wait()
        try:
            run.train(checkpoint, log, stop)
            result = None if stop.is_requested else run.finish()
        finally:
            run.close()
            run_folder.release()
        if result is None or stop.is_requested:
            raise KeyboardInterrupt("stopped. Run the same command with --resume to continue.")
        return result
