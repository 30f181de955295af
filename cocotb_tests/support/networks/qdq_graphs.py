"""Random graphs in QDQ form in which ONNX Runtime merges, moves and drops quantisations across operators.

Tensors are quantised again with other scales, shared by several readers, reshaped and transposed back and forth in
float, and are outputs in the middle.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from cocotb_tests.support.networks.generated import TINY, Codes, Generated, Maker

_PERMUTATIONS = ([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2])


class GraphOfCodes:
    """Appends random operations, each on a random tensor of codes; the model is :meth:`finish`'s."""

    def __init__(self, seed: int):
        self.rng = rng = np.random.default_rng([seed, 11])
        self.maker = Maker(rng, "qdq", bool(rng.random() < 0.3), TINY)
        self.maker.start((1, int(rng.choice([2, 3, 4, 8])), *(int(side) for side in rng.integers(2, 7, 2))))
        self.tensors: list[Codes] = []
        self._keep()
        self._scales = rng.uniform(0.01, 0.1, 3)
        self._zeros = rng.choice([-128, 0, 5, -20, 127, 60], 3)
        self._dequantised: dict[str, str] = {}
        operations = (
            self._product,
            self._requantise,
            self._requantise,
            self._combine,
            self._concatenate,
            self._pool,
            self._activate,
            self._average,
            self._split,
            self._pad,
            self._flat_product,
        )
        for _ in range(int(rng.integers(2, 8))):
            chosen = self.tensors[-1] if rng.random() < 0.7 else self._any(self.tensors)
            operations[rng.integers(len(operations))](chosen)

    def finish(self) -> Generated:
        """The model: outputs are what nothing reads, and sometimes what something reads as well."""
        read = {name for node in self.maker.nodes for name in node.input}
        leaving = [item for item in self.tensors[1:] if item.name not in read or self._maybe(0.1)]
        names = [self._dequantise(item) if self._maybe(0.2) else item.name for item in leaving]
        text = " ".join(node.op_type for node in self.maker.nodes)
        return Generated(
            self.maker.serialise(list(dict.fromkeys(names)) or [self.tensors[-1].name]),
            text,
            self.maker.input_shape,
            self.maker.dtype,
        )

    def _maybe(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def _any(self, items: list) -> Codes:
        return items[self.rng.integers(len(items))]

    def _use(self, item: Codes) -> None:
        self.maker.tensor, self.maker.scale, self.maker.zero, self.maker.shape = (
            item.name,
            item.scale,
            item.zero,
            item.shape,
        )

    def _keep(self) -> None:
        """Add the maker's current tensor."""
        self.tensors.append(Codes(self.maker.tensor, self.maker.scale, self.maker.zero, self.maker.shape))

    def _dequantise(self, item: Codes) -> str:
        """A DequantizeLinear, its own or one that others read as well."""
        if item.name not in self._dequantised or self._maybe(0.5):
            self._dequantised[item.name] = self.maker.node("DequantizeLinear", [item.name, item.scale, item.zero])
        return self._dequantised[item.name]

    def _quantise(self, tensor: str, shape: tuple[int, ...], like: Codes | None = None) -> None:
        """QuantizeLinear with the scale of some tensor, or one that is near another's."""
        like = self._any(self.tensors) if like is None and self._maybe(0.4) else like
        if like is None:
            scale = float(self.rng.choice(self._scales) * self.rng.choice([1, 1, 1.3, 0.5]))
            ends = self.maker.quantisation(scale, int(self.rng.choice(self._zeros)))
        else:
            ends = like.scale, like.zero
        self.maker.quantise(tensor, *ends, shape)
        self._keep()

    def _layout(self, tensor: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        """A few operators that move nothing, or that others undo."""
        node, constant = self.maker.node, self.maker.constant
        for _ in range(self.rng.integers(0, 3)):
            kind = self.rng.choice(["Identity", "Dropout", "Relu", "Transpose", "Reshape", "Unsqueeze", "Flatten"])
            if kind in ("Identity", "Dropout", "Relu"):
                tensor = node(str(kind), [tensor])
            elif kind == "Unsqueeze":
                axis = constant("axis", np.array([1]))
                tensor = node("Squeeze", [node("Unsqueeze", [tensor, axis]), axis])
            elif len(shape) == 4 and kind == "Transpose":
                order = _PERMUTATIONS[self.rng.integers(len(_PERMUTATIONS))]
                tensor = node("Transpose", [tensor], perm=order)
                if self._maybe(0.3):
                    tensor = node("Relu", [tensor])
                if self._maybe(0.6):
                    tensor = node("Transpose", [tensor], perm=[order.index(axis) for axis in range(4)])
                else:
                    shape = tuple(shape[axis] for axis in order)
            elif len(shape) == 4 and kind == "Reshape":
                there, back = (-1, shape[1], shape[2] * shape[3]), (-1, *shape[1:])
                for target in (there, back):
                    tensor = node("Reshape", [tensor, constant("shape", np.array(target))])
            elif len(shape) == 4 and self._maybe(0.3):
                tensor, shape = node("Flatten", [tensor]), (1, math.prod(shape))
        return tensor, shape

    def _product(self, item: Codes) -> None:
        if len(item.shape) != 4:
            return
        self._use(item)
        kernel, pad = [min(int(self.rng.integers(1, 4)), side) for side in item.shape[2:]], 0
        if self._maybe(0.3):
            kernel, pad = [3, 3], 1
        sides = [side + 2 * pad - size + 1 for side, size in zip(item.shape[2:], kernel, strict=True)]
        outputs = int(self.rng.choice([item.shape[1], 4]))
        # Most without a bias: ONNX Runtime computes in float where a merged scale does not fit that of the bias.
        self.maker.product(
            "Conv",
            (outputs, item.shape[1], *kernel),
            0,
            (1, outputs, *sides),
            bias=self._maybe(0.3),
            relu=self._maybe(0.3),
            kernel_shape=kernel,
            pads=[pad] * 4,
        )
        self._keep()

    def _flat_product(self, item: Codes) -> None:
        self._use(item)
        if len(item.shape) > 2:
            self.maker.flatten()
        outputs = int(self.rng.integers(1, 9))
        self.maker.product(
            str(self.rng.choice(["MatMul", "Gemm"])),
            (self.maker.shape[1], outputs),
            1,
            (1, outputs),
            bias=self._maybe(0.3),
        )
        self._keep()

    def _requantise(self, item: Codes) -> None:
        for _ in range(int(self.rng.integers(1, 3))):
            self._quantise(*self._layout(self._dequantise(item), item.shape))
            item = self.tensors[-1]

    def _combine(self, item: Codes) -> None:
        other = self._any([other for other in self.tensors if other.shape == item.shape])
        operands = [self._dequantise(item), self._dequantise(other)]
        tensor = self.maker.node("Add" if self._maybe(0.7) else "Mul", operands)
        self._quantise(self.maker.node("Relu", [tensor]) if self._maybe(0.3) else tensor, item.shape)

    def _concatenate(self, item: Codes) -> None:
        fitting = [
            other for other in self.tensors if len(other.shape) == len(item.shape) and other.shape[2:] == item.shape[2:]
        ]
        joined = [item, *(self._any(fitting) for _ in range(self.rng.integers(1, 3)))]
        tensor = self.maker.node("Concat", [self._dequantise(other) for other in joined], axis=1)
        self._quantise(tensor, (1, sum(other.shape[1] for other in joined), *item.shape[2:]))

    def _pool(self, item: Codes) -> None:
        tensor, shape = self._layout(self._dequantise(item), item.shape)
        if len(shape) == 4:
            tensor = self.maker.node("MaxPool", [tensor], kernel_shape=[2, 2], pads=[1, 1, 0, 0])
        self._quantise(*self._layout(tensor, shape), item if self._maybe(0.6) else None)

    def _activate(self, item: Codes) -> None:
        kind = str(self.rng.choice(["Tanh", "Sigmoid", "Relu", "LeakyRelu", "HardSwish", "Swish", "Clip"]))
        self._quantise(*self._layout(self.maker.pointwise(self._dequantise(item), kind), item.shape))

    def _average(self, item: Codes) -> None:
        if len(item.shape) == 4:
            tensor = self.maker.node("GlobalAveragePool", [self._dequantise(item)])
            self._quantise(tensor, (*item.shape[:2], 1, 1), item if self._maybe(0.5) else None)

    def _split(self, item: Codes) -> None:
        if item.shape[1] % 2 == 0:
            name = self.maker.name("Split")
            halves = [f"{name}_first", f"{name}_second"]
            self.maker.nodes.append(
                helper.make_node("Split", [self._dequantise(item)], halves, name, axis=1, num_outputs=2)
            )
            for half in halves:
                self._quantise(half, (1, item.shape[1] // 2, *item.shape[2:]), item if self._maybe(0.6) else None)

    def _pad(self, item: Codes) -> None:
        if len(item.shape) == 4:
            pads = self.maker.constant("pads", np.array([0, 0, 1, 1, 0, 0, 0, 1]))
            shape = (*item.shape[:2], item.shape[2] + 1, item.shape[3] + 2)
            self._quantise(
                self.maker.node("Pad", [self._dequantise(item), pads]), shape, item if self._maybe(0.6) else None
            )
