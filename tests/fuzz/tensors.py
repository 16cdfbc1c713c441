"""Tensors in random programs: expressions, and statements that change tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from .choices import Makers
from .simple import Maker, Simple
from .tree import Line, Statement

TENSORS = ("mat", "vec", "scal")
"""Tensors of 2, 1 and 0 dimensions; `mat` is (rows, 4) and `vec` is (4,)."""


class Tensors(Simple):
    """Adds tensors to what programs are made of."""

    kinds: ClassVar[tuple[str, ...]] = (
        *TENSORS * 3,
        *("int", "int", "float", "bool", "str", "nlist", "tlist", "tdict"),
        *("pdict", "point", "gen", "pset"),
    )
    operand: ClassVar[str] = "mat"

    def made_operand(self, depth: int) -> str:
        """Returns a matrix."""
        return self.tensor(depth, "mat")

    # ── expressions ───────────────────────────────────────────────────────────────

    def tensor(self, depth: int = 2, kind: str | None = None) -> str:
        """Returns an expression for a tensor."""
        kind = kind or self.random.choice(TENSORS)
        name = self.variable(kind)
        if depth <= 0 or (name and self.chance(0.2)):
            return name or {"mat": "a", "vec": "b", "scal": "torch.tensor(0.5)"}[kind]
        sub = lambda k=kind: self.tensor(depth - 1, k)  # noqa: E731
        choices: list[Callable[[], str]] = [
            lambda: f"torch.{self.one_of('sin', 'cos', 'tanh', 'sigmoid')}({sub()})",
            lambda: f"{sub()}.{self.one_of('relu', 'abs', 'neg', 'clone', 'detach')}()",
            lambda: (
                f"({sub()} {self.one_of('+', '-', '*')} {self.lower(depth - 1, kind)})"
            ),
            lambda: f"({sub()} * {self.number(depth - 1)})",
            lambda: f"({self.number(depth - 1)} - {sub()})",
            lambda: f"torch.where({sub()} > 0, {sub()}, {self.number(0)})",
            lambda: f"helper({sub()}, {self.integer(depth - 1)})",
            lambda: f"{sub()}.clamp(-2, 2)",
            lambda: f"({sub()} if {self.condition(0)} else {sub()})",
            lambda: f"blend({sub()}, scale={self.number(depth - 1)})",
            lambda: f"st.apply({sub()})",
            lambda: f"early({sub()}, {self.integer(0)} % 5)",
            lambda: f"logged(helper)({sub()}, {self.integer(0)})",
            lambda: f"functools.partial(blend, scale={self.number(0)})({sub()})",
            lambda: f"functools.reduce(torch.add, [{sub()}, {sub()}])",
        ]
        if kind == "mat":
            choices += [
                lambda: f"net({sub()})",
                lambda: f"{sub()}.t().t()",
                lambda: f"({sub()} + {sub('vec')})",
                lambda: f"{sub()}.flip(0)",
                lambda: f"torch.cat([{sub()}, {sub()}])[:3]",
                lambda: f"torch.stack([{sub('vec')}, {sub('vec')}])",
                lambda: f"{sub()} @ torch.ones(4, 4)",
                lambda: f"torch.softmax({sub()}.float(), -1)",
            ]
        elif kind == "vec":
            choices += [
                lambda: (
                    f"{sub('mat')}[{self.one_of('0', '-1', 'n % 2', 'len(nums) % 2')}]"
                ),
                lambda: f"{sub('mat')}.sum(0)",
                lambda: f"{sub()}.flip(0)",
                lambda: f"{sub()}.cumsum(0)",
            ]
        else:
            choices += [
                lambda: (
                    f"{sub(self.one_of('mat', 'vec'))}.{self.one_of('sum', 'mean', 'max')}()"
                ),
                lambda: f"{sub('vec')}[{self.one_of('0', '-1', 'n % 4')}]",
            ]
        if self.chance(0.08):
            choices = [
                lambda: f"opaque({sub()})",
                lambda: f"breaking({sub()})",
                lambda: f"counted({sub()})",
                lambda: f"torch.from_numpy(({sub()}).detach().numpy() * 1)",
                lambda: f"st.callback({sub()})",
                lambda: f"st.prop + {sub()}",
                lambda: f"({sub()} + torch.rand(4))",
                lambda: f"torch.nn.functional.dropout({sub()}, 0.5)",
                lambda: f"({sub()} * random.random())",
                lambda: f"identity({sub()})",
            ]
        fn, bag = self.variable("fn"), self.variable("tlist")
        if fn and self.chance(0.25):
            return f"{fn}({sub()})"
        if bag and self.chance(0.08):
            return f"({bag}[-1] if {bag} else {sub()})"
        return self.random.choice(choices)()

    def lower(self, depth: int, kind: str) -> str:
        """A tensor with no more dimensions than `kind`."""
        index = TENSORS.index(kind)
        return self.tensor(depth, self.random.choice(TENSORS[index:]))

    def integer_makers(self, depth: int) -> Makers:
        """Adds what tensors say of themselves."""
        makers = [
            lambda: f"{self.tensor(0, 'mat')}.shape[{self.one_of('0', '1')}]",
            lambda: f"{self.tensor(0)}.dim()",
            lambda: f"(int({self.tensor(1, 'scal')}.item() * 3) % 5)",
            lambda: f"int({self.tensor(1, 'scal')} > 0)",
            lambda: f"len({self.variable('tlist', 'tdict') or 'parts'})",
        ]
        if self.chance(0.4):
            return makers
        return super().integer_makers(depth)

    def real_makers(self, depth: int) -> Makers:
        """Adds what is read from tensors."""
        return [
            *super().real_makers(depth),
            *[lambda: f"{self.tensor(1, 'scal')}.item()"] * 3,
            *[lambda: f"float({self.tensor(1, 'scal')})"] * 2,
        ]

    def condition_makers(self, depth: int) -> Makers:
        """Adds conditions on what is in tensors."""
        makers = [*super().condition_makers(depth), lambda: "net.training"]
        if depth > 0:
            scalar = lambda: self.tensor(1, "scal")  # noqa: E731
            makers += [
                *[lambda: f"{scalar()} > {self.number(0)}"] * 3,
                lambda: f"bool({scalar()} > 0)",
                lambda: f"identity({self.variable('mat') or 'a'}) is a",
                lambda: "torch.is_grad_enabled()",
                lambda: f"0 < {scalar()} < {self.number(0)}",
            ]
        return makers

    def value(self, kind: str) -> str:
        """Returns an expression for a value of `kind`."""
        if kind in TENSORS:
            return self.tensor(2, kind)
        parts = self.variable("tlist") or "parts"
        if kind == "tlist":
            return self.made(
                [
                    lambda: f"[{self.tensor(1)}, {self.tensor(1)}]",
                    lambda: (
                        f"[{self.tensor(1)} * i for i in range({self.integer(0)} % 5)]"
                    ),
                    lambda: "[]",
                    lambda: parts,
                    lambda: f"[helper(p, 1) for p in {parts}]",
                    lambda: "list(table.values())",
                    lambda: f"[*{parts}, {self.tensor(0)}][-3:]",
                    lambda: f"list(map(torch.neg, {parts}))",
                    lambda: f"list({self.tensor(0, 'mat')}.unbind(0))",
                ]
            )
        table = self.variable("tdict") or "table"
        if kind == "tdict":
            return self.made(
                [
                    lambda: f"{{'k': {self.tensor(1)}, mode: {self.tensor(0)}}}",
                    lambda: f"dict({table})",
                    lambda: table,
                    lambda: f"{{str(i): {self.tensor(0)} + i for i in range(3)}}",
                    lambda: f"{{**{table}, 'z': {self.tensor(0)}}}",
                    lambda: f"{{k: v * 2 for k, v in {table}.items()}}",
                ]
            )
        return super().value(kind)

    def iterables(self, item: str) -> dict[str, tuple[str, dict[str, str]]]:
        """Adds loops over tensors."""
        parts = self.variable("tlist") or "parts"
        return {
            **super().iterables(item),
            f"{parts}[:3]": (item, {item: "vec"}),
            f"enumerate({parts}[:2])": (
                f"{item}, {item}_",
                {item: "int", f"{item}_": "vec"},
            ),
            "sorted(table.items())": (f"_, {item}", {item: "vec"}),
            f"{self.tensor(1, 'mat')}": (item, {item: "vec"}),
            f"({self.tensor(0)} * k for k in range(2))": (item, {item: "vec"}),
        }

    def managers(self) -> list[str]:
        """Adds PyTorch's own."""
        return [
            *super().managers(),
            "torch.no_grad()",
            "torch.no_grad(), Manager('m', st)",
            "torch.enable_grad()",
            "torch.inference_mode()",
            "torch.set_grad_enabled(flag)",
            "torch.autocast('cpu', dtype=torch.bfloat16, enabled=flag)",
        ]

    # ── statements ────────────────────────────────────────────────────────────────

    def statement_makers(self) -> list[tuple[int, Maker]]:
        """Adds statements on tensors."""
        return [
            *super().statement_makers(),
            (9, self.in_place),
            (5, self.view),
            (3, self.augmented_tensor),
            (2, self.pair),
            (1, self.hook),
        ]

    def augmented_tensor(self) -> list[Statement]:
        """`+=` and the like on a tensor."""
        name = self.assignable("mat", "vec")
        if name is None:
            return self.assignment()
        return [Line(f"{name} {self.one_of('+=', '*=', '-=')} {self.number(1)}")]

    def pair(self) -> list[Statement]:
        """Two tensors from one call."""
        first, second = self.target("mat"), self.fresh("u")
        self.env[first] = self.env[second] = "mat"
        one, two = self.tensor(1, "mat"), self.tensor(1, "mat")
        return [Line(f"{first}, {second} = pair({one}, {two})")]

    def hook(self) -> list[Statement]:
        """Adds a hook to the module, or takes it away."""
        return [
            Line(
                self.one_of(
                    "st.hook = net.register_forward_hook(doubling)",
                    "st.hook = net.register_forward_pre_hook(halving)",
                    "st.hook = net.linear.register_forward_hook(doubling)",
                    "st.hook and st.hook.remove()",
                )
            )
        ]

    def in_place(self) -> list[Statement]:
        """Changes a tensor in place."""
        kind = self.one_of("mat", "vec")
        name = self.variable(kind) or "a"
        low = self.lower(1, "scal")
        return [
            Line(
                self.one_of(
                    f"{name}.add_({self.number(1)})",
                    f"{name}.mul_({low})",
                    f"{name}[0] = {self.number(1)}",
                    f"{name}[0] += {low}",
                    f"{name}[{name} > 0] = {self.number(0)}",
                    f"{name}.sin_()",
                    f"{name}[-1:] *= {self.number(0)}",
                    f"torch.add({name}, {self.number(0)}, out={name})"
                    if self.chance(0.2)
                    else f"{name}.clamp_(-1, 1)",
                    f"{name}.copy_({name} * 2)",
                    f"torch.mul({name}, 2, out={name})",
                    f"{name}.data = {name}.data * 2",
                    f"{name}.t_()" if self.chance(0.2) else f"{name}.zero_()",
                    f"{name}.view(-1)[:2].add_({self.number(0)})",
                )
            )
        ]

    def view(self) -> list[Statement]:
        """Makes a view, or what looks like one."""
        name = self.fresh("view")
        mat, vec = self.variable("mat") or "a", self.variable("vec") or "b"
        choice = self.random.choice(
            [
                (f"{mat}[0]", "vec"),
                (f"{mat}[1:]", "mat"),
                (f"{mat}.view(-1, 4)", "mat"),
                (f"{mat}.t()", "mat"),
                (f"{vec}[0]", "scal"),
                (f"{vec}.expand_as({mat})", "mat"),
                (f"{vec}.unsqueeze(0)", "mat"),
                (f"{mat}.detach()", "mat"),
                (f"{mat}.double()", "mat"),
                (f"{mat}.long()", "mat"),
                (f"{mat} > 0", "mat"),
                (f"{vec}.to(torch.float32)", "vec"),
            ]
        )
        self.env[name] = choice[1]
        if self.chance(0.2):
            changed = f"{name}.{self.one_of('add_(1)', 'mul_(2)', 'zero_()')}"
            return [Line(f"{name} = {choice[0]}"), Line(changed)]
        return [Line(f"{name} = {choice[0]}")]

    def container_makers(self) -> list[Callable[[], str]]:
        """Adds lists and dicts of tensors."""
        tensors = self.variable("tlist") or "parts"
        table = self.variable("tdict") or "table"
        return [
            *super().container_makers(),
            lambda: f"{tensors}.append({self.tensor(2)})",
            lambda: f"{table}['k'] = {self.tensor(2)}",
            lambda: f"{table}[mode] = {self.tensor(1)}",
            lambda: f"{tensors} += [{self.tensor(0)}]",
            lambda: f"{table}.pop('k', None)",
            lambda: f"{table}.update(z={self.tensor(1)})",
            lambda: f"{tensors}.reverse()",
            lambda: f"{tensors}.append(a)",
            lambda: f"{tensors}.clear()",
            lambda: f"{tensors}[0] += {self.number(0)}",
            lambda: f"{tensors}[-1:] = [{self.tensor(0)}]",
        ]

    def effect_makers(self) -> list[Callable[[], str]]:
        """Adds effects of tensors and of the module."""
        return [
            *super().effect_makers(),
            lambda: f"print({self.tensor(1)})",
            lambda: f"st.last = {self.tensor(1)}",
            lambda: "net.steps += 1",
            lambda: f"net.buffer.add_({self.number(0)})",
            lambda: "net.train(not net.training)",
            lambda: f"st.log.append({self.tensor(1, 'scal')}.item())",
            lambda: f"keep({self.tensor(1)})",
            lambda: f"keep({self.variable('tlist') or 'parts'})",
            lambda: f"net.buffer = {self.tensor(0, 'vec')}",
            lambda: f"torch.manual_seed({self.integer(0)})",
        ]
