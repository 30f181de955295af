"""Graphs of mixed networks: maps with many branches, and vectors, which may be executed in batches."""

from __future__ import annotations

from collections.abc import Sequence

from cocotb_tests.support.networks.families.net_file import Codes
from cocotb_tests.support.networks.families.scope import Scope

from .layers import Drawn, kinds
from .net import MixedNet

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
_MOST_CHANNELS = 48


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
        if x.channels + other.channels <= _MOST_CHANNELS:
            return [net.concat([x, other])]
    if kind in ("product", "difference", "extreme") or (kind in ("part", "pieces", "gate") and x.channels > 1):
        return drawn.grow(kind, x)
    return [drawn.connect(x)]


def _finish(drawn: Drawn) -> None:
    """What nothing reads is an output."""
    for x in drawn.unread.values():
        drawn.net.output(x)
