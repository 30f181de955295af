"""A folded layer trains to the gradients of the original: on whole numbers, in which sums of any order are exact."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lutterfly.golden.connections.dimension_folding import fold_split, plan_fold

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch.nn import functional  # noqa: E402

from lutterfly.train.layers.dimension_folding import fold_filter, fold_input, folded_conv2d  # noqa: E402

Pair = tuple[int, int]

#: Output and input channels, kernel, stride, folds: those that the source works out, with its planner's folds.
EXAMPLES = [
    (64, 4, (6, 6), (2, 2), plan_fold((6, 6), (2, 2), 4, 64).folds),
    (64, 4, (4, 4), (4, 4), plan_fold((4, 4), (4, 4), 4, 64).folds),
    (8, 4, (1, 6), (1, 1), (4, 4)),
    (8, 4, (1, 6), (1, 1), (2, 8)),
    (8, 4, (1, 6), (1, 1), plan_fold((1, 6), (1, 1), 4, 64).folds),
    (8, 3, (3, 3), (1, 1), plan_fold((3, 3), (1, 1), 3, 16).folds),
    (8, 3, (3, 3), (2, 2), plan_fold((3, 3), (2, 2), 3, 16).folds),
    (8, 1, (5, 5), (1, 1), plan_fold((5, 5), (1, 1), 1, 16).folds),
    (8, 3, (7, 7), (2, 2), plan_fold((7, 7), (2, 2), 3, 64).folds),
    (8, 3, (11, 11), (4, 4), plan_fold((11, 11), (4, 4), 3, 64).folds),
    (8, 3, (5, 7), (3, 3), (2, 2)),
    (8, 5, (3, 3), (1, 1), (1, 1)),
]


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-99, 100, shape).double().requires_grad_()


def assert_trains_alike(outputs: int, inputs: int, kernel: Pair, stride: Pair, folds: Pair, size: Pair) -> None:
    values, weight, bias = whole(2, inputs, *size), whole(outputs, inputs, *kernel), whole(outputs)
    given = [values, weight, bias]
    original = functional.conv2d(values, weight, bias, stride)
    folded = folded_conv2d(values, weight, bias, stride=stride, folds=folds)
    assert torch.equal(folded, original)
    # A loss whose gradient depends on the result; in its sums all numbers are whole and below 2**53.
    targets = torch.randint(-99, 100, original.shape).double()
    wanted = torch.autograd.grad((original * original / 2 - original * targets).sum(), given)
    found = torch.autograd.grad((folded * folded / 2 - folded * targets).sum(), given)
    for one, other in zip(found, wanted, strict=True):
        assert other.any()
        assert other.abs().max() < 2**53
        assert torch.equal(one, other)


@pytest.mark.parametrize(("outputs", "inputs", "kernel", "stride", "folds"), EXAMPLES)
@pytest.mark.parametrize("more", [0, 5])
def test_results_and_gradients_are_those_of_the_original(
    outputs: int, inputs: int, kernel: Pair, stride: Pair, folds: Pair, more: int
):
    torch.manual_seed(0)
    size = kernel[0] + 2 * stride[0] + more, kernel[1] + stride[1] + more
    assert_trains_alike(outputs, inputs, kernel, stride, folds, size)


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(st.integers(1, 3), pairs, pairs, pairs, pairs)
@settings(max_examples=60)
def test_any_kernel_stride_and_split_trains_alike(inputs: int, kernel: Pair, stride: Pair, folds: Pair, more: Pair):
    torch.manual_seed(0)
    size = kernel[0] + more[0], kernel[1] + more[1]
    assert_trains_alike(2, inputs, kernel, stride, folds, size)


@pytest.mark.parametrize(("outputs", "inputs", "kernel", "stride", "folds"), EXAMPLES)
def test_shapes_are_those_of_the_plan(outputs: int, inputs: int, kernel: Pair, stride: Pair, folds: Pair):
    weight = fold_filter(torch.ones(outputs, inputs, *kernel), folds)
    plan = fold_split(kernel, stride, folds)
    assert weight.shape == (outputs, folds[0] * folds[1] * inputs, *plan.kernel)
    assert (weight[0] == 0).sum() == inputs * plan.padding


def test_a_kernel_that_becomes_one_by_one():
    """Its filter is a reshape in the layout with channels last, and its input has each pixel once."""
    weight, values = whole(64, 4, 4, 4), whole(1, 4, 8, 12)
    last = weight.permute(0, 2, 3, 1)
    assert torch.equal(fold_filter(weight, (4, 4))[:, :, 0, 0], last.reshape(64, 64))
    folded = fold_input(values, (4, 4), (4, 4), (4, 4))
    assert folded.shape == (1, 64, 2, 3)
    assert torch.equal(folded.flatten().sort().values, values.flatten().sort().values)


def test_a_training_step_on_the_folded_layer_is_one_on_the_original():
    torch.manual_seed(0)
    values, start = whole(2, 4, 14, 14).detach(), whole(8, 4, 6, 6)
    trained = []
    for convolve in (
        lambda weight: functional.conv2d(values, weight, None, (2, 2)),
        lambda weight: folded_conv2d(values, weight, stride=(2, 2), folds=(8, 2)),
    ):
        weight = start.detach().clone().requires_grad_()
        # A power of two rounds nothing.
        optimiser = torch.optim.SGD([weight], lr=2.0**-20)
        (convolve(weight) * 3).sum().backward()
        optimiser.step()
        trained.append(weight.detach())
    assert torch.equal(*trained)
    assert not torch.equal(trained[0], start)
