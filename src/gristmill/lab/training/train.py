"""train(): a dataset folder in, a trained model with its curves out. The whole flow on one screen."""

import os
from collections.abc import Sequence

from gristmill.core.names import printable
from gristmill.dataset.dataset import open_dataset
from gristmill.lab.training.faults import device_for, explained
from gristmill.lab.training.feeds import Scored
from gristmill.lab.training.monitor import Tell
from gristmill.lab.training.processes import Stop, Together
from gristmill.lab.training.run import Run, changed_versions, facts_of, with_objective
from gristmill.lab.training.run_folder import RunFolder
from gristmill.lab.training.train_config import TrainConfig
from gristmill.lab.training.train_result import Result, read_result


def train(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    resume: bool = False,
    tell: Tell = lambda _: None,
    command: str = "",
    frozen: Sequence[Scored] = (),
    keep_model: bool = True,
) -> Result:
    """`frozen`: further windows that each evaluation scores, beside validation. Without a model, no score on test."""
    dataset = open_dataset(folder)
    config = with_objective(config or TrainConfig(), dataset)
    together = Together(device_for(config))
    tell = tell if together.is_first else lambda _: None
    place = RunFolder(out)
    facts = facts_of(dataset, config, together.device, command)
    checkpoint = place.look(facts, resume=resume)
    if place.is_done():
        tell(f"{printable(str(place.path))} is done already.")
        return read_result(place.path)
    with explained(config, place.path), Stop(tell) as stop:
        run = Run(dataset, config, together, place, frozen, keep_model=keep_model)
        for line in changed_versions(place, facts) if resume else ():
            tell(line)
        together.wait()
        if together.is_first:
            place.begin(facts, checkpoint)
        together.wait()
        try:
            run.learn(checkpoint, tell, stop)
            result = None if stop.is_wanted else run.finish()
        finally:
            run.close()
            place.release()
        if result is None or stop.is_wanted:
            raise KeyboardInterrupt("stopped; the same command with --resume goes on from here.")
        return result
