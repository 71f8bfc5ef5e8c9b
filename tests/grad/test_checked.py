"""What ``Grad[M]`` promises is checked when a function is called."""

from __future__ import annotations

import inspect
import re
import typing
from typing import Annotated, Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import gradviz as gv
from gradviz.errors import GradvizError, ModelMismatchError, NotAModelError, described
from gradviz.grad.algebra import Grad, M
from gradviz.grad.checked import check_grad, checked


class Mlp(nn.Sequential):
    def __init__(self, width: int = 3) -> None:
        super().__init__(nn.Linear(2, width), nn.Linear(width, 1))


class Wider(Mlp):
    pass


class Other(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 3), nn.Linear(3, 1))


def gradient(model: nn.Module) -> Grad[Any]:
    return Grad(model, [torch.ones_like(p) for p in model.parameters() if p.requires_grad])


def other_again() -> type[nn.Module]:
    """A class of the same module and name as `Other`, as when a notebook cell runs again."""

    class Again(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(2, 3), nn.Linear(3, 1))

    Again.__name__ = Again.__qualname__ = "Other"
    return Again


# check_grad -----------------------------------------------------------------------------------------------------------


def test_a_gradient_of_the_model_comes_back_as_it_is():
    model = Mlp()
    g = gradient(model)
    for right in (g, 2 * g, gv.value_and_grad(lambda m: m[1](m[0](torch.ones(1, 2))).sum(), model)[1]):
        assert gv.check_grad(right, model) is right
    assert check_grad(g, Mlp()) is g  # another model of the class with the same names and shapes


def mismatch(g: Any, model: nn.Module, words: str) -> None:
    with pytest.raises(ModelMismatchError, match=words) as error:
        check_grad(g, model)
    assert error.value.code == "E0904"
    assert isinstance(error.value, TypeError)
    assert isinstance(error.value, GradvizError)


@pytest.mark.parametrize(
    "thing", [3, None, torch.ones(2), {"weight": torch.ones(1)}, [torch.ones(1)], Mlp()], ids=lambda x: type(x).__name__
)
def test_what_is_no_gradient_is_refused(thing):
    mismatch(thing, Mlp(), f"A gradient of a Mlp is wanted; got {re.escape(described(thing))}")


def test_a_gradient_of_another_class_is_refused_naming_both():
    mismatch(gradient(Other()), Mlp(), r"of a .*Mlp is wanted; this is one of a .*Other")


def test_a_gradient_of_a_subclass_or_of_the_base_is_one_of_another_model():
    mismatch(gradient(Wider()), Mlp(), "Wider")
    mismatch(gradient(Mlp()), Wider(), "Mlp")


def test_another_shape_is_refused_naming_the_parameter():
    mismatch(gradient(Mlp(5)), Mlp(), r"The gradient of 0\.weight has shape \(5, 2\).*the parameter has \(3, 2\)")


def test_another_dtype_is_refused_naming_the_parameter():
    mismatch(gradient(Mlp()).to(torch.float64), Mlp(), r"0\.weight has shape .*torch\.float64.*torch\.float32")
    mismatch(gradient(Mlp()), Mlp().half(), r"torch\.float32.*torch\.float16")


def test_missing_and_further_parameters_are_named():
    model = Mlp()
    g = gradient(model)
    model[0].bias.requires_grad_(False)
    mismatch(g, model, r"differ in trainable parameters: 0\.bias")
    mismatch(gradient(model), Mlp(), r"differ in trainable parameters: 0\.bias")


def test_an_unused_parameter_is_no_missing_one():
    model = Mlp()
    g = Grad(model, [torch.ones(3, 2), None, None, None])
    assert check_grad(g, model) is g
    mismatch(g, Mlp().double(), "dtype|float64")


def test_another_order_of_declaration_is_refused():
    one, two = nn.ParameterDict({"a": torch.ones(1), "b": torch.ones(1)}), nn.ParameterDict({"b": torch.ones(1)})
    two["a"] = nn.Parameter(torch.ones(1))
    mismatch(gradient(one), two, "their order")


def test_a_class_that_was_defined_again_is_the_same_model():
    again = other_again()
    assert again is not Other
    g = gradient(again())
    assert check_grad(g, Other()) is g


def test_a_part_of_a_gradient_is_one_of_that_part():
    model = Mlp()
    assert check_grad(gradient(model)[0], model[0]).weight.shape == (3, 2)
    mismatch(gradient(model)[0], model[1], r"\(3, 2\)")


def test_a_compiled_model_is_what_it_wraps():
    model = Mlp()
    g = gradient(model)
    assert check_grad(g, torch.compile(model, backend="eager")) is g


def test_a_tree_map_that_breaks_a_gradient_is_found():
    mismatch(pytree.tree_map(lambda leaf: leaf.sum(), gradient(Mlp())), Mlp(), r"0\.weight has shape \(\)")


# The decorator --------------------------------------------------------------------------------------------------------


@checked
def step(model: Mlp, g: Grad[Mlp], rate: float = 0.1) -> tuple[float, float]:
    """Describe the step."""
    return g.norm().item(), rate


@checked
def alone(g: gv.Grad[Mlp], *, h: Grad[Mlp] | None = None) -> int:
    return len(g)


def refused(words: str, function: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(ModelMismatchError, match=words) as error:
        function(*args, **kwargs)
    assert error.value.code == "E0904"


def test_right_arguments_pass_through_positional_by_keyword_and_by_default():
    model = Mlp()
    g = gradient(model)
    want = g.norm().item()
    assert step(model, g) == (want, 0.1)
    assert step(g=g, model=model, rate=3) == (want, 3)
    assert alone(g) == 4
    assert alone(g=g) == 4


def test_the_function_keeps_its_name_text_and_signature():
    assert step.__name__ == "step"
    assert step.__doc__ == "Describe the step."
    assert list(inspect.signature(step).parameters) == ["model", "g", "rate"]


@pytest.mark.parametrize(
    "thing", [3, None, torch.ones(2), {"0.weight": torch.ones(3, 2)}], ids=lambda x: type(x).__name__
)
def test_an_argument_that_is_no_gradient_is_named(thing):
    refused(f"g: A gradient of a Mlp is wanted; got {re.escape(described(thing))}", alone, thing)
    refused(f"g: A gradient of a Mlp is wanted; got {re.escape(described(thing))}", step, Mlp(), thing)


def test_a_gradient_of_another_class_is_refused_with_and_without_a_model():
    refused("g: A gradient of a Mlp is wanted; this is one of a Other", alone, gradient(Other()))
    refused("g: A gradient of a Mlp is wanted; this is one of a Other", step, Mlp(), gradient(Other()))


def test_a_gradient_of_a_subclass_is_taken_and_of_a_base_refused():
    @checked
    def wider(g: Grad[Wider]) -> int:
        return len(g)

    assert alone(gradient(Wider())) == 4
    assert step(Wider(), gradient(Wider()))[0] > 0
    refused("g: A gradient of a Wider is wanted; this is one of a Mlp", wider, gradient(Mlp()))


def test_where_the_model_is_given_shapes_dtypes_and_names_are_held_against_it():
    model = Mlp()
    refused(r"g: The gradient of 0\.weight has shape \(5, 2\)", step, model, gradient(Mlp(5)))
    refused(r"g: .*torch\.float64.*torch\.float32", step, model, gradient(model).to(torch.float64))
    g = gradient(model)
    model[0].bias.requires_grad_(False)
    refused(r"g: The gradient and the model differ in trainable parameters: 0\.bias", step, model, g)


def test_without_a_model_shapes_and_dtypes_are_held_against_the_one_the_gradient_was_taken_of():
    refused(
        r"g: The gradient of 0\.weight has shape \(\)",
        alone,
        pytree.tree_map(lambda leaf: leaf.sum(), gradient(Mlp())),
    )
    refused(r"g: .*0\.weight .*float64", alone, gradient(Mlp()).to(torch.float64))


def test_of_two_models_of_the_class_neither_is_held_against_the_gradient():
    @checked
    def between(old: Mlp, new: Mlp, g: Grad[Mlp]) -> int:
        return len(g)

    assert between(Mlp(3), Mlp(5), gradient(Mlp(5))) == 4


def test_every_annotated_argument_is_checked():
    @checked
    def both(g: Grad[Mlp], x: int, h: Grad[Other]) -> int:
        return len(g) + len(h) + x

    assert both(gradient(Mlp()), 1, gradient(Other())) == 9
    refused("^h: ", both, gradient(Mlp()), 1, gradient(Mlp()))
    refused("^g: ", both, gradient(Other()), 1, gradient(Other()))
    refused("^h: ", both, gradient(Mlp()), 1, h=3)


def test_a_class_that_was_defined_again_satisfies_the_old_annotation():
    again = other_again()

    def f(g):
        return len(g)

    f.__annotations__["g"] = Grad[Other]
    assert checked(f)(gradient(again())) == 4


def test_annotations_as_strings_and_as_classes_are_the_same():
    def as_class(g):
        return len(g)

    def as_string(g):
        return len(g)

    def as_inner_string(g):
        return len(g)

    as_class.__annotations__["g"] = Grad[Mlp]
    as_string.__annotations__["g"] = "Grad[Mlp]"
    as_inner_string.__annotations__["g"] = Grad["Mlp"]
    for function in (as_class, as_string, as_inner_string):
        assert checked(function)(gradient(Mlp())) == 4
        refused("this is one of a Other", checked(function), gradient(Other()))


def test_a_class_defined_after_the_function_is_found_at_the_first_call():
    namespace: dict[str, Any] = {"Grad": Grad, "checked": checked, "nn": nn}
    exec("from __future__ import annotations\n@checked\ndef f(g: Grad[Later]): return len(g)", namespace)
    exec("class Later(nn.Linear): pass", namespace)
    assert namespace["f"](gradient(namespace["Later"](2, 1))) == 2
    refused("A gradient of a Later is wanted", namespace["f"], gradient(Mlp()))


def test_a_name_that_only_a_type_checker_knows_does_not_switch_the_check_off():
    @checked
    def f(g: Grad[Mlp], x: OnlyForTheTypeChecker) -> int:  # noqa: F821
        return len(g)

    assert f(gradient(Mlp()), 1) == 4
    refused("this is one of a Other", f, gradient(Other()), 1)


@pytest.mark.parametrize(
    "annotation",
    [Grad[Mlp] | None, typing.Optional[Grad[Mlp]], Annotated[Grad[Mlp], "kept"]],  # noqa: UP045
    ids=["or None", "Optional", "Annotated"],
)
def test_an_optional_or_annotated_gradient_is_checked_too(annotation):
    def f(g=None):
        return g

    f.__annotations__["g"] = annotation
    f = checked(f)
    g = gradient(Mlp())
    assert f(g) is g
    assert f() is None
    with pytest.raises(ModelMismatchError):
        f(gradient(Other()))


def test_none_is_taken_where_the_annotation_allows_it():
    assert alone(gradient(Mlp()), h=None) == 4


def test_gradients_in_a_star_argument_are_each_checked():
    @checked
    def total(*gs: Grad[Mlp], **named: Grad[Mlp]) -> int:
        return len(gs) + len(named)

    g = gradient(Mlp())
    assert total() == 0
    assert total(g, g, a=g) == 3
    with pytest.raises(ModelMismatchError):
        total(g, gradient(Other()))
    with pytest.raises(ModelMismatchError):
        total(a=3)


def test_a_gradient_of_a_type_variable_is_held_against_the_model_given():
    @checked
    def descend(model: M, g: Grad[M]) -> int:
        return len(g)

    assert descend(Mlp(), gradient(Mlp())) == 4
    for wrong in (3, gradient(Other())):
        with pytest.raises(ModelMismatchError):
            descend(Mlp(), wrong)


def test_a_gradient_of_any_module_takes_every_model():
    @checked
    def any_model(g: Grad[nn.Module]) -> int:
        return len(g)

    assert any_model(gradient(Mlp())) == any_model(gradient(Other())) == 4
    refused("A gradient of a Module is wanted; got an int", any_model, 3)


def test_methods_are_checked():
    class Trainer:
        @checked
        def take(self, g: Grad[Mlp]) -> int:
            return len(g)

    assert Trainer().take(gradient(Mlp())) == 4
    refused("^g: ", Trainer().take, gradient(Other()))


def test_a_wrong_call_is_python_s_own_error():
    with pytest.raises(TypeError, match="missing a required argument: 'g'"):
        step(Mlp())
    with pytest.raises(TypeError, match="unexpected keyword argument 'what'"):
        alone(gradient(Mlp()), what=1)


def test_other_annotations_and_none_at_all_are_left_alone():
    @checked
    def f(a, b: int, c: list[Grad[Mlp]], d: Grad = None) -> str:
        return f"{a}{b}{c}{d}"

    assert f("x", "not an int", 3, 4) == "xnot an int34"


def test_a_return_annotation_is_no_argument():
    @checked
    def f(x: int) -> Grad[Mlp]:
        return x

    assert f(3) == 3


def test_a_gradient_of_what_is_no_model_is_refused_where_it_is_written():
    with pytest.raises(NotAModelError, match=r"Grad\[int\]: a gradient is one of a model") as error:
        checked(lambda g: g).__annotations__["g"] = Grad[int]
    assert error.value.code == "E0303"


def test_a_gradient_of_what_is_no_model_in_a_string_is_refused_at_the_call():
    @checked
    def f(g: Grad[int]) -> None: ...

    with pytest.raises(NotAModelError):
        f(gradient(Mlp()))
