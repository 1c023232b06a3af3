import pickle

import msgspec
import pytest

from gristmill.core.records import DropReason, DropStage, WhyNoVariant


@pytest.mark.parametrize("reason", [*DropReason, *WhyNoVariant])
def test_every_reason_has_a_meaning_and_is_its_name_wherever_it_is_written(reason):
    kind = type(reason)
    assert reason.meaning
    assert reason == reason.name.lower() == f"{reason}"
    assert msgspec.json.decode(msgspec.json.encode(reason), type=kind) is reason
    assert msgspec.convert(str(reason), kind) is pickle.loads(pickle.dumps(reason)) is reason


def test_every_stage_has_reasons_for_which_files_do_not_come_to_it():
    assert {reason.stage for reason in DropReason} == set(DropStage)
