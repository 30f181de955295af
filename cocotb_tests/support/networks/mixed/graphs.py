"""Graphs of mixed networks: maps with many branches, and vectors; which layers they may have, and how each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cocotb_tests.support.networks.families import limits
from cocotb_tests.support.networks.families.builder import Codes, Scope
from cocotb_tests.support.networks.mixed.writer import MixedNet
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, FPC, MAXIMUM, MULTIPLY, XNOR
from lutterfly.golden.engines.engine import Engine

# Which layers a mixed network may have, and how each is drawn.

#: About how often each is drawn, and the engines that it needs. Those in the second half are drawn by `dags`.
_KINDS: dict[str, tuple[int, tuple[Engine, ...]]] = {
    "fast": (5, (FPC,)),
    "binary": (5, (XNOR, MAXIMUM)),
    "skipping": (3, ()),
    "bordered": (2, ()),
    "bordered pool": (1, (MAXIMUM,)),
    "skipping pool": (1, (MAXIMUM,)),
    "part": (2, (MAXIMUM,)),
    "pieces": (2, (MAXIMUM,)),
    "gate": (1, (MAXIMUM,)),
    "sum": (2, (ADD,)),
    "head": (1, ()),
    "conv": (3, ()),
    "pointwise": (2, ()),
    "depthwise": (2, ()),
    "grouped": (1, ()),
    "strided": (1, ()),
    "add": (1, (ADD, MAXIMUM)),
    "concat": (3, (MAXIMUM,)),
    "maximum": (1, (MAXIMUM,)),
    "table": (2, (MAXIMUM,)),
    "pad": (1, ()),
    "average": (1, ()),
}
#: What further kinds need, where that is not the engine that copies.
_EXTRA_ENGINES: dict[str, Engine] = {"product": MULTIPLY, "excite": MULTIPLY, "difference": ADD}
_FUNCTIONS = ("Sigmoid", "Tanh", "LeakyRelu", "HardSwish")
#: Features that a fully connected layer reads at most.
_MOST_FEATURES = 200
#: Pixels of what is made larger, and channels of what is made deeper.
_MOST_PIXELS, _MOST_CHANNELS = 400, 12
#: Rows, columns or channels of what changes its axes or is made longer.
_MOST_SIDE = 32


def kinds(config: Config, net: MixedNet) -> list[str]:
    """The kinds that an accelerator has the engines for, each as often as it is to be drawn; and those of ``net``."""
    engines = {*config.engines}
    found = [kind for kind, (often, needed) in _KINDS.items() if engines.issuperset(needed) for _ in range(often)]
    extra = {kind: often for kind, often in net.extra_kinds.items() if _EXTRA_ENGINES.get(kind, MAXIMUM) in engines}
    more = [kind for kind, often in extra.items() for _ in range(often)]
    return found + more


@dataclass
class Drawn:
    """A network under construction: what may be read, and what nothing has read yet."""

    net: MixedNet
    scope: Scope
    pool: list[Codes] = field(default_factory=list)
    unread: dict[str, Codes] = field(default_factory=dict)

    def grow(self, kind: str, x: Codes) -> list[Codes]:
        """The results of a layer of a kind that reads ``x``."""
        own = _DRAWN.get(kind)
        if own is None:
            return limits.apply(self.net, self.scope, kind, x, self.pool, self.unread)
        return own(self, x)

    def _width(self) -> int:
        return self.scope.width()

    def fast(self, x: Codes) -> list[Codes]:
        hardware = self.scope.config.engines[FPC].pattern
        outputs = min(max(2, self._width()), hardware.width)
        if x.channels > hardware.width:
            return [self.net.conv(x, outputs)]
        return [self.net.fast(x, outputs, hardware)]

    def binary(self, x: Codes) -> list[Codes]:
        """Often at the ends of bytes and words."""
        outputs = self.scope.one_of(1, 7, 8, 9, 16, self._width())
        return [self.net.binary(x, outputs, codes=self.scope.coin())]

    def skipping(self, x: Codes) -> list[Codes]:
        """Strides that leave rows or columns unread."""
        stride = self.scope.one_of(2, 3, (1, 2), (2, 1), (3, 2))
        if min(x.shape[1:]) < 3:
            return [self.net.conv(x, self._width())]
        kernel, groups = self.scope.one_of(1, 1, 2), x.channels if self.scope.coin(0.2) else 1
        channels = x.channels if groups > 1 else self._width()
        return [self.net.conv(x, channels, kernel, stride=stride, groups=groups, padded=False)]

    def bordered(self, x: Codes) -> list[Codes]:
        """Wide kernels, so that windows differ in what they have of the border."""
        kernel, dilation = self.scope.one_of(3, 4, 5), self.scope.one_of(1, 2)
        depthwise = self.scope.coin()
        channels = x.channels if depthwise else self.scope.one_of(2, 4, 9)
        groups, stride = x.channels if depthwise else 1, self.scope.one_of(1, 1, 2, 3)
        return [self.net.conv(x, channels, kernel, groups=groups, dilation=dilation, stride=stride)]

    def bordered_pool(self, x: Codes) -> list[Codes]:
        """Pooling with a border, which runs in classes of windows."""
        if self.scope.coin(0.3) and min(x.shape[1:]) >= 3:
            return [self.net.average(x, 3, stride=self.scope.one_of(1, 2), padded=True)]
        return [self.net.maximum(x, self.scope.one_of(2, 3, 4, 5), stride=self.scope.one_of(1, 1, 2), padded=True)]

    def skipping_pool(self, x: Codes) -> list[Codes]:
        return [self.net.maximum(x, self.scope.one_of(1, 2), stride=self.scope.one_of(2, 3))]

    def part(self, x: Codes) -> list[Codes]:
        """Some channels; nobody may read the others."""
        if x.channels < 2:
            return [self.net.conv(x, self._width())]
        first = self.scope.depth(0, x.channels - 1)
        last = self.scope.depth(first + 1, x.channels)
        if last - first == x.channels:
            first = 1
        return [self.net.slice(x, first, last)]

    def pieces(self, x: Codes) -> list[Codes]:
        """Unequal shares of the channels, of which one may be read by nobody."""
        if x.channels < 3:
            return self.part(x)
        first = self.scope.depth(1, x.channels - 2)
        second = self.scope.depth(1, x.channels - first - 1)
        found = self.net.split(x, [first, second, x.channels - first - second])
        if self.scope.coin():
            found.pop(self.scope.depth(0, 2))
        return found

    def gate(self, x: Codes) -> list[Codes]:
        return [self.net.gate(x, self.scope.one_of("Sigmoid", "HardSigmoid", "Tanh"))]

    def sum(self, x: Codes) -> list[Codes]:
        """With another tensor, first or second, or with what a layer makes of this one."""
        other = self._other(x)
        operands = (x, other) if self.scope.coin() else (other, x)
        return [self.net.add(*operands, activation=self.scope.one_of("", "relu"))]

    def product(self, x: Codes) -> list[Codes]:
        """With another tensor, or with a gate of it."""
        other = self._other(x)
        if self.scope.coin():
            other = self.net.pointwise(other, self.scope.one_of("Sigmoid", "Tanh"))
        operands = (x, other) if self.scope.coin() else (other, x)
        return [self.net.multiply(*operands, activation=self.scope.one_of("", "", "relu"))]

    def _other(self, x: Codes) -> Codes:
        """A tensor of the same shape: one that is there, or a new one."""
        others = [y for y in self.pool if y.shape == x.shape and y.name != x.name]
        if not others:
            is_vector = len(x.shape) == 1
            return self.net.dense(x, x.channels) if is_vector else self.net.conv(x, x.channels, self.scope.one_of(1, 3))
        other = self.scope.one_of(*others)
        self.unread.pop(other.name, None)
        return other

    def difference(self, x: Codes) -> list[Codes]:
        return [self.net.combine("Sub", x, self._other(x), activation=self.scope.one_of("", "", "relu"))]

    def extreme(self, x: Codes) -> list[Codes]:
        kind = self.scope.one_of("Max", "Min")
        return [self.net.combine(kind, self._other(x), x, activation=self.scope.one_of("", "", "relu"))]

    def excite(self, x: Codes) -> list[Codes]:
        """Squeeze and excite: by a factor for each channel, which is computed of their averages."""
        squeezed = self.net.conv(self.net.global_average(x), self.scope.one_of(1, 4, 9), 1, activation="relu")
        gate = self.net.pointwise(self.net.conv(squeezed, x.channels, 1), self.scope.one_of("Sigmoid", "HardSigmoid"))
        operands = (x, gate) if self.scope.coin() else (gate, x)
        return [self.net.multiply(*operands, activation=self.scope.one_of("", "", "relu"))]

    def matrices(self, x: Codes) -> list[Codes]:
        """Each channel's rows, or all channels, by those of another tensor, as attention compares tokens."""
        channels, height, width = x.shape
        other, net = self._other(x), self.net
        if max(channels, height * width) <= _MOST_SIDE and self.scope.coin():
            flat = [net.reshape(y, (1, channels, height * width)) for y in (x, other)]
            a, b = flat if self.scope.coin() else flat[::-1]
            tokens = (net.turn(a, (0, 2, 1)), b) if self.scope.coin() else (a, net.turn(b, (0, 2, 1)))
            return [net.matrices(*map(net.around_zero, tokens))]
        if channels > 4 or max(height, width) > _MOST_SIDE:
            return [net.conv(x, self.scope.depth(1, 4), 1)]
        operands = (x, net.turn(other, (0, 2, 1))) if self.scope.coin() else (net.turn(other, (0, 2, 1)), x)
        return [net.matrices(*map(net.around_zero, operands))]

    def spread(self, x: Codes) -> list[Codes]:
        """With a vector that is there for every pixel."""
        vector = self.net.conv(self.net.global_average(x), x.channels, 1)
        has_sums = ADD in self.scope.config.engines
        if has_sums and self.scope.coin():
            return [self.net.add(x, vector, like=x)]
        return [self.net.combine(self.scope.one_of(*["Sub"] * has_sums, "Max", "Min"), x, vector)]

    def head(self, x: Codes) -> list[Codes]:
        """Fully connected layers on a whole map, an output."""
        if x.size > _MOST_FEATURES:
            x = self.net.global_average(x)
        y = self.net.flatten(x)
        if x.size > x.channels:
            # A butterfly reads the channels of a pixel.
            y = self.net.dense(y, self.scope.one_of(4, 8, 16), activation="relu")
        self.net.output(self.connect(y))
        return []

    def nearest(self, x: Codes) -> list[Codes]:
        factors = self.scope.one_of((2, 2), (1, 2), (3, 1))
        if x.shape[1] * factors[0] * x.shape[2] * factors[1] > _MOST_PIXELS:
            return [self.net.conv(x, self._width())]
        return [self.net.nearest(x, factors)]

    def depth(self, x: Codes) -> list[Codes]:
        """Of channels that are there, if that many are."""
        if x.channels % 4 or x.shape[1] * x.shape[2] * 4 > _MOST_PIXELS:
            return self.phases(x)
        return [self.net.depth_to_space(x, 2)]

    def phases(self, x: Codes) -> list[Codes]:
        """Of what a convolution gives for all phases, which nothing else reads."""
        block = self.scope.one_of(2, 2, 3)
        if x.shape[1] * x.shape[2] * block**2 > _MOST_PIXELS:
            return [self.net.conv(x, self._width())]
        channels = self.scope.one_of(1, 3, 8, 9) * block**2
        return [self.net.depth_to_space(self.net.conv(x, channels, self.scope.one_of(1, 2, 3)), block)]

    def space(self, x: Codes) -> list[Codes]:
        if x.shape[1] % 2 or x.shape[2] % 2 or x.channels > _MOST_CHANNELS:
            return self.crop(x)
        return [self.net.space_to_depth(x, 2)]

    def crop(self, x: Codes) -> list[Codes]:
        """Some rows and columns; nobody may read the others."""
        if min(x.shape[1:]) < 3:
            return [self.net.conv(x, self._width())]
        starts = tuple(self.scope.depth(0, 1) for _ in range(2))
        ends = x.shape[1] - self.scope.depth(0, 1), x.shape[2] - 1
        return [self.net.crop(x, starts, ends)]

    def shuffle(self, x: Codes) -> list[Codes]:
        """All channels, or the halves of what is shuffled, one of which nobody may read."""
        groups = [count for count in (2, 3, 4) if x.channels % count == 0 and x.channels > count]
        if not groups:
            return [self.net.shuffle(self.net.conv(x, self.scope.one_of(8, 12, 18)), 2)]
        y = self.net.shuffle(x, self.scope.one_of(*groups))
        if self.scope.coin(0.6) or y.channels % 2:
            return [y]
        return self.net.split(y, 2)[: self.scope.depth(1, 2)]

    def turn(self, x: Codes) -> list[Codes]:
        axes = self.scope.one_of((0, 2, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0))
        if max(x.shape) > _MOST_SIDE:
            return [self.net.conv(x, self._width())]
        return [self.net.turn(x, axes)]

    def reshape(self, x: Codes) -> list[Codes]:
        """Rows to channels, or channels to rows."""
        channels, height, width = x.shape
        if channels % 2 == 0 and height * 2 <= _MOST_SIDE and self.scope.coin():
            return [self.net.reshape(x, (channels // 2, height * 2, width))]
        if height % 2 == 0 and channels * 2 <= _MOST_SIDE:
            return [self.net.reshape(x, (channels * 2, height // 2, width))]
        return self.turn(x)

    def choose(self, x: Codes) -> list[Codes]:
        """By indices, in any order, or with a step."""
        axis = self.scope.depth(0, 2)
        if self.scope.coin(0.4):
            return [self.net.every(x, axis, self.scope.one_of(2, 3, -1, -2))]
        count = min(self.scope.depth(1, 6), x.shape[axis])
        return [self.net.choose(x, axis, [self.scope.depth(0, x.shape[axis] - 1) for _ in range(count)])]

    def halves(self, x: Codes) -> list[Codes]:
        axis = self.scope.depth(1, 2)
        if x.shape[axis] < 2:
            return [self.net.conv(x, self._width())]
        return self.net.halves(x, axis, self.scope.depth(1, x.shape[axis] - 1))[: self.scope.depth(1, 2)]

    def stack(self, x: Codes) -> list[Codes]:
        """With another tensor that fits, itself, or what a layer makes of it."""
        axis = self.scope.depth(1, 2)
        kept = [other for other in range(3) if other != axis]
        others = [y for y in self.pool if len(y.shape) == 3 and all(y.shape[at] == x.shape[at] for at in kept)]
        other = self.scope.one_of(*others, self.net.conv(x, x.channels, self.scope.one_of(1, 3)))
        if x.shape[axis] + other.shape[axis] > _MOST_SIDE:
            return [other]
        self.unread.pop(other.name, None)
        return [self.net.stack([x, other] if self.scope.coin() else [other, x], axis)]

    def surround(self, x: Codes) -> list[Codes]:
        """A border narrower than the map."""
        pads = [self.scope.depth(0, min(2, x.shape[1 + at % 2] - 1)) for at in range(4)]
        mode = self.scope.one_of("reflect", "edge", "constant")
        return [self.net.surround(x, pads, mode)] if any(pads) else [self.net.conv(x, self._width())]

    def connect(self, x: Codes) -> Codes:
        """A layer on a vector, of any of the three kinds."""
        config, outputs = self.scope.config, self.scope.one_of(2, 5, 8, 10, 17)
        kind = self.scope.one_of("fast", "binary", "dense", "dense")
        if kind == "fast" and FPC in config.engines and max(x.channels, outputs) <= config.engines[FPC].width:
            return self.net.fast(x, outputs, config.engines[FPC].pattern)
        if kind == "binary" and {XNOR, MAXIMUM} <= {*config.engines}:
            return self.net.binary(x, outputs, codes=self.scope.coin())
        activation = self.scope.one_of("relu", "", "Tanh")
        return self.net.dense(x, outputs, activation=activation, matmul=self.scope.coin(0.3))


_DRAWN: dict[str, Callable[[Drawn, Codes], list[Codes]]] = {
    "fast": Drawn.fast,
    "binary": Drawn.binary,
    "skipping": Drawn.skipping,
    "bordered": Drawn.bordered,
    "bordered pool": Drawn.bordered_pool,
    "skipping pool": Drawn.skipping_pool,
    "part": Drawn.part,
    "pieces": Drawn.pieces,
    "gate": Drawn.gate,
    "sum": Drawn.sum,
    "head": Drawn.head,
    "nearest": Drawn.nearest,
    "depth": Drawn.depth,
    "phases": Drawn.phases,
    "space": Drawn.space,
    "crop": Drawn.crop,
    "shuffle": Drawn.shuffle,
    "turn": Drawn.turn,
    "reshape": Drawn.reshape,
    "choose": Drawn.choose,
    "halves": Drawn.halves,
    "stack": Drawn.stack,
    "surround": Drawn.surround,
    "matrices": Drawn.matrices,
    "spread": Drawn.spread,
    "product": Drawn.product,
    "excite": Drawn.excite,
    "difference": Drawn.difference,
    "extreme": Drawn.extreme,
}


_VECTOR_KINDS = (
    "connect",
    "connect",
    "table",
    "add",
    "concat",
    "part",
    "pieces",
    "gate",
    "product",
    "difference",
    "extreme",
)
#: What leaves the order of channels free.
_MOVABLE = ("conv", "pointwise", "depthwise", "strided", "skipping", "bordered", "sum", "concat", "maximum", "average")
#: Channels of what is put side by side.
_MOST_JOINED = 48


def maps(net: MixedNet, scope: Scope) -> None:
    """Each layer reads any earlier tensor; some are outputs although others read them, and all that nothing reads."""
    side = scope.side(large=0.06)
    _grow(net, scope, (side, scope.one_of(side, side, max(2, side // 2), side + 1)), kinds(scope.config, net))


def classes(net: MixedNet, scope: Scope) -> None:
    """Likewise, every second layer one whose windows are of many classes, each with a command of its own."""
    drawable, side = kinds(scope.config, net), scope.depth(5, 9)
    bordered = [kind for kind in drawable if kind in ("bordered pool", "binary")] or ["bordered"]
    _grow(net, scope, (side, side), drawable + bordered * (len(drawable) // len(bordered)))


def movable(net: MixedNet, scope: Scope) -> None:
    """Likewise, most layers such that channels may move, and few outputs, whose channels may not."""
    drawable = kinds(scope.config, net)
    drawable += [kind for kind in _MOVABLE if kind in drawable] * 4
    _grow(net, scope, (scope.side(large=0), scope.side(large=0)), drawable, outputs=0.03, is_after=True)


def _grow(
    net: MixedNet,
    scope: Scope,
    size: tuple[int, int],
    drawable: Sequence[str],
    *,
    outputs: float = 0.15,
    is_after: bool = False,
) -> None:
    """``outputs``: part of the layers; ``is_after``: what nothing reads is an output by way of a layer."""
    channels = scope.width()
    drawn = Drawn(net, scope, [net.input(channels, *size) for _ in range(scope.one_of(1, 1, 1, 2))])
    for _ in range(scope.depth(5, 14)):
        net.draw_form()
        _add(drawn, scope.one_of(*drawable), outputs)
    for name, x in drawn.unread.items() if is_after else ():
        drawn.unread[name] = net.conv(x, scope.one_of(1, 2, 4))
    _finish(drawn)


def vectors(net: MixedNet, scope: Scope) -> None:
    """Likewise, without maps."""
    drawn = Drawn(net, scope, [net.input(scope.one_of(3, 8, 16, 33, 64))])
    drawable = [kind for kind in _VECTOR_KINDS if kind in ("connect", *kinds(scope.config, net))]
    for _ in range(scope.depth(4, 10)):
        net.draw_form()
        _add(drawn, scope.one_of(*drawable))
    _finish(drawn)


def _add(drawn: Drawn, kind: str, outputs: float = 0.15) -> None:
    scope = drawn.scope
    read = drawn.pool[-1] if scope.coin(0.5) else scope.one_of(*drawn.pool)
    found = _grow_vector(drawn, kind, read) if len(read.shape) == 1 else drawn.grow(kind, read)
    drawn.unread.pop(read.name, None)
    for y in found:
        drawn.pool.append(y)
        if scope.coin(outputs):
            drawn.net.output(y)
        else:
            drawn.unread[y.name] = y


def _grow_vector(drawn: Drawn, kind: str, x: Codes) -> list[Codes]:
    net, scope = drawn.net, drawn.scope
    if kind == "table":
        return [net.pointwise(x, scope.one_of("Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Relu"))]
    if kind in ("add", "concat"):
        others = [y for y in drawn.pool if kind == "concat" or y.shape == x.shape]
        other = scope.one_of(*others)
        drawn.unread.pop(other.name, None)
        if kind == "add":
            return [net.add(x, other)]
        if x.channels + other.channels <= _MOST_JOINED:
            return [net.concat([x, other])]
    if kind in ("product", "difference", "extreme") or (kind in ("part", "pieces", "gate") and x.channels > 1):
        return drawn.grow(kind, x)
    return [drawn.connect(x)]


def _finish(drawn: Drawn) -> None:
    """What nothing reads is an output."""
    for x in drawn.unread.values():
        drawn.net.output(x)
