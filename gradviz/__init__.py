"""See your gradients while you train: a Jupyter toolkit for PyTorch.

    import gradviz as gv

    loop = gv.trainer(model, "cross_entropy", "adam").metric("accuracy")
    loop.run(batches, epochs=5)         # under the cell: progress, loss, and a heatmap of gradient norms, live
    loop.history.norms                  # afterwards: a pandas frame with every iteration

Names load at first use, so importing gradviz costs no more than importing torch.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradviz import errors as errors
    from gradviz import metrics as metrics
    from gradviz.grad.algebra import Grad as Grad
    from gradviz.grad.algebra import norm as norm
    from gradviz.grad.autodiff import value_and_grad as value_and_grad
    from gradviz.grad.capture.capture import Capture as Capture
    from gradviz.grad.capture.reap import reap as reap
    from gradviz.grad.capture.sow import record_vjp as record_vjp
    from gradviz.grad.capture.sow import sow as sow
    from gradviz.grad.checked import check_grad as check_grad
    from gradviz.grad.checked import checked as checked
    from gradviz.grad.modes import Eval as Eval
    from gradviz.grad.modes import Train as Train
    from gradviz.history.compare import compare as compare
    from gradviz.history.history import History as History
    from gradviz.loop.evaluator import evaluator as evaluator
    from gradviz.loop.events import State as State
    from gradviz.loop.loop import Loop as Loop
    from gradviz.loop.trainer import trainer as trainer
    from gradviz.loop.turns import running as running
    from gradviz.step.loss_scale import LossScale as LossScale
    from gradviz.step.model_state import ModelState as ModelState
    from gradviz.step.objective import Output as Output
    from gradviz.step.policy import Policy as Policy
    from gradviz.step.step_state import StepState as StepState
    from gradviz.step.train_step import train_step as train_step
    from gradviz.watching.watch import watch as watch
    from gradviz.widgets.dashboard import dashboard as dashboard
    from gradviz.widgets.doctor import doctor as doctor
    from gradviz.widgets.dtype_table import dtype_table as dtype_table
    from gradviz.widgets.frozen_mask import frozen_mask as frozen_mask
    from gradviz.widgets.heatmap import heatmap as heatmap
    from gradviz.widgets.inspector import inspector as inspector
    from gradviz.widgets.page import save_html as save_html

__version__ = _version("gradviz-jupyter")

_HOMES = {
    "Capture": "gradviz.grad.capture.capture",
    "Eval": "gradviz.grad.modes",
    "Grad": "gradviz.grad.algebra",
    "History": "gradviz.history.history",
    "Loop": "gradviz.loop.loop",
    "LossScale": "gradviz.step.loss_scale",
    "ModelState": "gradviz.step.model_state",
    "Output": "gradviz.step.objective",
    "Policy": "gradviz.step.policy",
    "State": "gradviz.loop.events",
    "StepState": "gradviz.step.step_state",
    "Train": "gradviz.grad.modes",
    "check_grad": "gradviz.grad.checked",
    "checked": "gradviz.grad.checked",
    "compare": "gradviz.history.compare",
    "dashboard": "gradviz.widgets.dashboard",
    "doctor": "gradviz.widgets.doctor",
    "dtype_table": "gradviz.widgets.dtype_table",
    "evaluator": "gradviz.loop.evaluator",
    "frozen_mask": "gradviz.widgets.frozen_mask",
    "heatmap": "gradviz.widgets.heatmap",
    "inspector": "gradviz.widgets.inspector",
    "norm": "gradviz.grad.algebra",
    "reap": "gradviz.grad.capture.reap",
    "record_vjp": "gradviz.grad.capture.sow",
    "running": "gradviz.loop.turns",
    "save_html": "gradviz.widgets.page",
    "sow": "gradviz.grad.capture.sow",
    "train_step": "gradviz.step.train_step",
    "trainer": "gradviz.loop.trainer",
    "value_and_grad": "gradviz.grad.autodiff",
    "watch": "gradviz.watching.watch",
}
_MODULES = ("errors", "metrics")
__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gradviz.{name}")
    if name not in _HOMES:
        from gradviz.errors import nearest

        raise AttributeError(f"module 'gradviz' has no attribute {name!r}: {nearest(name, _HOMES)}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
