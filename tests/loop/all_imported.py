"""Imports all that training imports, some of it only on its way, and trains nothing."""

import torch

import gradviz as gv
from gradviz.grad.statistics import statistics

gv.trainer(torch.nn.Linear(1, 1), "mean_squared_error", "sgd")  # torch imports its compiler for the first optimizer
statistics([torch.ones(1)])  # and numba most of itself for its first call
