"""TensorBoard's own reader on what peer_events_write writes. Argument: the path of that program."""
import math
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "events.out.tfevents.dro")
    subprocess.run([sys.argv[1], path], check=True)
    events = list(EventFileLoader(path).Load())
    assert events[0].file_version == "brain.Event:2", events[0]
    assert [e.step for e in events[1:]] == [0, 10, 20, 30, 40], events
    board = EventAccumulator(folder)
    board.Reload()
    tags = set(board.Tags()["scalars"])
    assert tags == {"test/accuracy", "class_weight/été", "odd"}, tags
    for k, e in enumerate(board.Scalars("test/accuracy")):
        assert (e.step, e.wall_time) == (10 * k, 1700000000 + 10 * k / 8), e
        assert abs(e.value - k / 10) < 1e-7, e
    assert [e.value for e in board.Scalars("class_weight/été")] == [-15.0 * k for k in range(5)]
    odd = [e.value for e in board.Scalars("odd")]
    assert math.isnan(odd[3]) and abs(odd[0] / 1e30 - 1) < 1e-6, odd
print("  five events with three scalars each, read back")
