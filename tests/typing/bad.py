"""What a type checker reports, on each line that says so and on no other: read by `test_typing`, never run."""

# pyright: strict
from __future__ import annotations

import torch
from torch import Tensor, nn

import gradviz as gv


class Mlp(nn.Module):
    """A model."""


class Cnn(nn.Module):
    """A model of another class."""


def loss(m: Mlp, x: Tensor) -> Tensor:
    output: Tensor = m(x)
    return output.sum()


def count(n: int, x: Tensor) -> Tensor:
    return n * x


def many(m: Mlp, x: Tensor) -> tuple[Tensor, Tensor]:
    output: Tensor = m(x)
    return output.sum(), output


def number(m: Mlp, x: Tensor) -> float:
    return loss(m, x).item()


def no_model() -> Tensor:
    return torch.zeros(())


def differentiation(m: Mlp, other: Cnn, x: Tensor) -> None:
    gv.value_and_grad(loss, other, x)  # error
    gv.value_and_grad(loss, x, m)  # error
    gv.value_and_grad(loss)  # error
    gv.value_and_grad(lambda m: loss(m, x), other)  # error
    gv.value_and_grad(m, loss, x)  # error
    gv.value_and_grad(count, 3, x)  # error
    gv.value_and_grad(many, m, x)  # error
    gv.value_and_grad(number, m, x)  # error
    gv.value_and_grad(no_model, m)  # error
    gv.value_and_grad(loss, m, x, create_graph="yes")  # error


def other_class(m: Mlp, x: Tensor) -> gv.Grad[Cnn]:
    return gv.value_and_grad(loss, m, x)[1]  # error


def two_models(g: gv.Grad[Mlp], h: gv.Grad[Cnn]) -> None:
    g + h  # error
    g - h  # error
    g += h  # error
    2 * g + 3 * h  # error


def refused(g: gv.Grad[Mlp], h: gv.Grad[Mlp], x: Tensor) -> None:
    g * g  # error
    g * h  # error
    g / h  # error
    g + x  # error
    x + g  # error
    g - x  # error
    x - g  # error
    x / g  # error
    g + 1  # error
    1 - g  # error
    2 / g  # error
    2**g  # error
    g**2  # error
    g // 2  # error
    g % 2  # error
    g @ g  # error
    g @ x  # error
    g * "2"  # error
    abs(g)  # error
    assert g < h  # error
    sum([g, h])  # error
    torch.mean(g)  # error
    torch.add(g, h)  # error
    gv.norm(x)  # error
    gv.norm(g, ord="fro")  # error
    g["w"] = x  # error
    g.unused = ()  # error


def not_a_model(g: gv.Grad[int]) -> None:  # error
    gv.check_grad(g, 3)  # error


@gv.checked
def descend(m: Mlp, g: gv.Grad[Mlp]) -> float:
    return g.norm().item()


def checks(m: Mlp, other: Cnn, g: gv.Grad[Mlp]) -> None:
    gv.check_grad(g, other)  # error
    descend(other, g)  # error
    descend(m, m)  # error
    descend(m)  # error
    descend(m, g, rate=0.1)  # error
    descend(m, g).norm()  # error
