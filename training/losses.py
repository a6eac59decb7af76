"""Losses of a training: on the screen, in a CSV file of the run and, where it is installed, for TensorBoard."""

from __future__ import annotations

from training.rows import RunFolder
from training.trainer import STATE_EVERY_UPDATES, ReportUpdate


def loss_record(folder: RunFolder, task: str) -> ReportUpdate:
    """Return what records the losses of a task's training.

    Losses of all updates are written every 250 updates, as the training's state is, and after the last: files of a
    resumed training are those of an unbroken one.
    """
    file, losses = folder.loss_file(task), list[tuple[int, float]]()
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        writer, missing = None, "; for TensorBoard as well, pip install tensorboard"
    else:
        writer, missing = SummaryWriter(str(folder.folder / "tensorboard" / task)), ""
    print(f"{task}: losses in {file}{missing}", flush=True)

    def record(update: int, n_updates: int, loss: float) -> None:
        losses.append((update, loss))
        if update % STATE_EVERY_UPDATES and update != n_updates:
            return
        print(f"{task}: {update}/{n_updates} updates, loss {loss:.2f}", flush=True)
        is_first = losses[0][0] == 1
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w" if is_first else "a") as lines:
            lines.write("update,loss\n" if is_first else "")
            lines.writelines(f"{done},{value!r}\n" for done, value in losses)
        if writer is not None:
            for done, value in losses:
                writer.add_scalar("loss", value, done)
            writer.flush()
        losses.clear()

    return record
