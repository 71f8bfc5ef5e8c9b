"""What a type checker accepts: read by `test_typing`, never run."""

# pyright: strict
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, assert_type

import torch
from torch import Tensor, nn

import gradviz as gv


class Mlp(nn.Module):
    """A model."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeepMlp(Mlp):
    """A model of a class below."""


def loss(m: Mlp, x: Tensor, y: Tensor, weight: float = 1.0) -> Tensor:
    output: Tensor = m(x)
    return weight * (output - y).square().mean()


def penalized(m: nn.Module, x: Tensor, mode: gv.Train | gv.Eval) -> Tensor:
    output: Tensor = mode(m)(x)
    return output.sum()


def grads(m: Mlp, x: Tensor) -> gv.Grad[Mlp]:
    return gv.value_and_grad(loss, m, x, x)[1]


def differentiation(m: Mlp, deep: DeepMlp, x: Tensor) -> None:
    assert_type(gv.value_and_grad(loss, m, x, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(loss, deep, x, x), tuple[Tensor, gv.Grad[DeepMlp]])
    assert_type(gv.value_and_grad(loss, m, x, y=x, weight=0.5), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(loss, m, x, x, 0.5, create_graph=True), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(penalized, m, x, gv.Train(seed=3)), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(penalized, m, x, mode=gv.Eval()), tuple[Tensor, gv.Grad[Mlp]])


class Task:
    """Functions of a model that are not plain functions."""

    def loss(self, m: Mlp, x: Tensor) -> Tensor:
        return loss(m, x, x)

    def __call__(self, m: Mlp, x: Tensor) -> Tensor:
        return loss(m, x, x)


def any_arguments(m: nn.Module, *inputs: Tensor, **options: float) -> Tensor:
    output: Tensor = m(*inputs, **options)
    return output


def other_functions(m: Mlp, x: Tensor) -> None:
    assert_type(gv.value_and_grad(lambda m: loss(m, x, x), m), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(lambda m, x: loss(m, x, x), m, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(lambda m, x, y: loss(m, x, y), m, x, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(lambda m, x, y: loss(m, x, y), m, x, y=x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(lambda m: m(x).sum(), m), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(partial(loss, weight=0.5), m, x, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(Task().loss, m, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(Task(), m, x), tuple[Tensor, gv.Grad[Mlp]])
    assert_type(gv.value_and_grad(any_arguments, m, x, x, slope=0.1), tuple[Tensor, gv.Grad[Mlp]])


def second_derivative(m: Mlp, x: Tensor) -> gv.Grad[Mlp]:
    def flatness(m: Mlp) -> Tensor:
        _, g = gv.value_and_grad(loss, m, x, x, create_graph=True)
        return g.norm() ** 2

    value, g = gv.value_and_grad(flatness, m)
    assert_type(value, Tensor)
    return g


def algebra(m: Mlp, x: Tensor, number: Tensor) -> None:
    g, h = grads(m, x), grads(m, x)
    assert_type(g + h, gv.Grad[Mlp])
    assert_type(g - h, gv.Grad[Mlp])
    assert_type(-g, gv.Grad[Mlp])
    assert_type(2 * g, gv.Grad[Mlp])
    assert_type(g * 0.5, gv.Grad[Mlp])
    assert_type(g * number, gv.Grad[Mlp])
    assert_type(g / 4, gv.Grad[Mlp])
    assert_type(g / number, gv.Grad[Mlp])
    assert_type(0.9 * g + 0.1 * (h - g) / 2, gv.Grad[Mlp])
    g += h
    g *= 0.5
    assert_type(g, gv.Grad[Mlp])
    assert_type(gv.norm(g), Tensor)
    assert_type(gv.norm(g, ord=1), Tensor)
    assert_type(g.norm(ord=1), Tensor)
    assert_type(g.norm(ord=float("inf")), Tensor)


def fields(g: gv.Grad[Mlp]) -> None:
    weight: Tensor = g["w"]
    weight = g.layers[0].weight
    inner: gv.Grad[nn.Linear] = g.encoder
    assert_type(weight, Tensor)
    assert_type(inner.norm(), Tensor)
    assert_type(list(g), list[str])
    assert_type(len(g), int)
    assert_type("w" in g, bool)
    assert_type(g.unused, tuple[str, ...])
    assert_type([leaf.shape for leaf in g.values()], list[torch.Size])
    assert_type(dict(g.items()), dict[str, Tensor])
    assert_type(g.cpu().detach().to(torch.float64), gv.Grad[Mlp])


@gv.checked
def descend(m: Mlp, g: gv.Grad[Mlp], rate: float = 0.1) -> list[Tensor]:
    return [p - rate * g[name] for name, p in m.named_parameters()]


def checks(m: Mlp, x: Tensor) -> None:
    assert_type(gv.check_grad(grads(m, x), m), gv.Grad[Mlp])
    assert_type(descend(m, grads(m, x)), list[Tensor])
    assert_type(descend(m, rate=0.5, g=grads(m, x)), list[Tensor])
    same: Callable[[Mlp, gv.Grad[Mlp], float], list[Tensor]] = descend
    same(m, grads(m, x), 0.5)


class Descent:
    """A method, whose first parameter is not the model."""

    @gv.checked
    def step(self, m: Mlp, g: gv.Grad[Mlp]) -> float:
        return g.norm().item()

    def run(self, m: Mlp, x: Tensor) -> float:
        return self.step(m, grads(m, x))


def of_any_model(g: gv.Grad[Any], h: gv.Grad[nn.Linear]) -> Tensor:
    return gv.norm(g) + gv.norm(h)
