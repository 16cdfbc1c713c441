"""Writes in place, views, aliases: memory that more than one tensor shows."""

from __future__ import annotations

import pytest
import torch

from tests.constructs.support import Cases
from tests.constructs.tensors import ramp

cases = Cases()


@cases.add("inplace-augmented", stage="emit")
def inplace_augmented():
    def program(x):
        x += 1
        x *= 2
        return x * 3

    return program, (ramp(),)


@cases.add("inplace-on-view", stage="emit")
def inplace_on_view():
    def program(x):
        x[0] += 1
        v = x[1]
        v -= 2
        return (v, x)

    return program, (ramp(),)


@cases.add("setitem", stage="emit")
def setitem():
    def program(x):
        x[0, 1:3] = 5
        x[x > 1] = 0
        x[[0, 1]] = x[[1, 2]]
        return x.sum()

    return program, (ramp(),)


@cases.add("setitem-by-tensor")
def setitem_by_tensor():
    def program(x):
        i = torch.tensor(1)
        x[i] = torch.tensor(5.0)
        x[i, i] += 2
        x[..., None][0] = 1
        x[None][0, 2] = 4
        x[1:1] = 7
        return x

    return program, (ramp(),)


@cases.add("out-argument", stage="emit")
def out_argument():
    def program(x):
        y = torch.empty(3, 4)
        torch.add(x, 1, out=y)
        torch.mul(x, 2, out=x)
        return y

    return program, (ramp(),)


@cases.add("out-parameter", stage="emit")
def out_parameter():
    def program(x, y):
        r = torch.sin(x, out=y)
        return (r, r is y)

    return program, (ramp(), torch.empty(3, 4))


@cases.add("out-resized", stage="emit")
def out_resized():
    def program(x, y):
        torch.sin(x, out=y)
        return y.shape

    return program, (ramp(), torch.empty(0))


@cases.add("out-view", stage="emit")
def out_view():
    def program(x):
        y = torch.zeros(6, 4)
        torch.add(x, 1, out=y[::2])
        torch.mul(x, 2, out=y[1::2])
        return y

    return program, (ramp(),)


@cases.add("data-attribute", stage="emit")
def data_attribute():
    def program(x):
        y = x.data
        y.add_(1)
        return y

    return program, (ramp(),)


@cases.add("detach-inplace", stage="emit")
def detach_inplace():
    def program(x):
        d = x.detach()
        d.add_(1)
        return (x * 2, d)

    return program, (ramp().requires_grad_(),)


@cases.add("data-assigned")
def data_assigned():
    def program(x):
        y = torch.ones(2)
        x.data = y
        return x * 2

    return program, (ramp(),)


@cases.add("resize")
def resize():
    def program(x):
        x = x.clone()
        x.resize_(2, 2)
        return (x, x.shape)

    return program, (ramp(),)


@cases.add("set-storage")
def set_storage():
    def program(x):
        y = torch.empty(0)
        y.set_(x)
        y.add_(1)
        return y

    return program, (ramp(),)


@cases.add("transpose-inplace")
def transpose_inplace():
    def program(x):
        x.t_()
        return (x.shape, x)

    return program, (ramp(),)


@cases.add("view-returned-after-write", stage="emit")
def view_returned_after_write():
    def program(x):
        v = x.t()
        v.mul_(2)
        return (v, v[0])

    return program, (ramp(),)


@cases.add("view-returned-with-gradient", stage="emit")
def view_returned_with_gradient():
    def program(x):
        return (x.t(), x[1], x.view(-1), x.detach(), x.unsqueeze(0))

    return program, (ramp().requires_grad_(),)


@cases.add("view-or-self")
def view_or_self():
    def program(x):
        return (
            x.contiguous(),
            x.float(),
            x.to(torch.float32),
            x.cpu(),
            x.reshape(3, 4),
            x.expand(3, 4),
            x.view(3, 4),
            x.type_as(x),
            x.flatten(),
            x.ravel(),
            x.real,
            x.detach(),
            x.data,
            x.clone(),
            x[:],
            x[...],
            x.squeeze(),
            x.requires_grad_(False),
            x.to(x),
            x.type(torch.float32),
            x.resolve_conj(),
            +x,
        )

    return program, (ramp(),)


@cases.add("view-or-self-written", stage="emit")
def view_or_self_written():
    def program(x):
        y = x.contiguous()
        y.add_(1)
        z = x.to(torch.float32)
        z.mul_(2)
        w = x.reshape(-1)
        w[0] = 100
        return (x, y is x, z is x)

    return program, (ramp(),)


@cases.add("view-base")
def view_base():
    def program(x):
        v = x.t()
        return (v._base is x, v._is_view(), x._is_view())

    return program, (ramp(),)


@cases.add("view-storage")
def view_storage():
    def program(x):
        y = x.view(-1)
        return (
            x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(),
            x.data_ptr() == y.data_ptr(),
            x.storage_offset(),
            x[1].storage_offset(),
        )

    return program, (ramp(),)


@cases.add("version-counter", stage="emit")
def version_counter():
    def program(x):
        v0 = x._version
        x.add_(1)
        x.mul_(2)
        return x._version - v0

    return program, (ramp(),)


@cases.add("alias-same-argument", stage="emit")
def alias_same_argument():
    a = ramp()

    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return (x + y, x is y)

    return (f, (a, a), {})


@cases.add("alias-overlap", stage="emit")
def alias_overlap():
    a = torch.arange(20.0)

    def f(x, y):
        x.add_(1)
        y.mul_(2)
        return x + y

    return (f, (a[:10], a[5:15]), {})


@cases.add("alias-overlap-read", stage="emit")
def alias_overlap_read():
    a = torch.arange(20.0)

    def f(x, y):
        z = y * 2
        x.copy_(y.flip(0))
        return z + y

    return (f, (a[:10], a[5:15]), {})


@cases.add("expanded-write", stage="emit")
def expanded_write():
    a = torch.arange(3.0)

    def f(x):
        y = x.expand(2, 3)
        try:
            y.add_(1)
        except RuntimeError as e:
            return (str(e), x)
        return y

    return (f, (a,), {})


@cases.add("overlap-write", stage="emit")
def overlap_write():
    def program(x):
        x[1:] = x[:-1]
        return x

    return program, (torch.arange(10.0),)


@cases.add("overlap-strided-write", stage="emit")
def overlap_strided_write():
    def program(x):
        y = x.as_strided((8, 3), (1, 1))
        y.add_(1)
        return x

    return program, (torch.arange(10.0),)


@cases.add("strides-of-size-one", stage="emit")
def strides_of_size_one():
    def program(x):
        return (
            x.repeat(1, 1, 1),
            x.repeat(2, 1, 3),
            x.squeeze(0),
            x.t() if x.dim() == 2 else x.transpose(0, 2),
            x.contiguous(),
            x.expand(3, 4, 1),
        )

    return program, (torch.ones(1, 4, 1),)


@cases.add("empty-reductions", stage="emit")
def empty_reductions():
    def program(x):
        return (
            x.sum(),
            x.sum(0),
            x.mean(0),
            x.prod(0),
            x.repeat(2, 2),
            x.reshape(4, 0),
            x.softmax(1),
            x.norm(),
            x.std(0),
            x.var(),
            x.logsumexp(0),
            x.any(),
            x.all(),
            x.cumsum(0),
        )

    return program, (torch.ones(0, 4),)


@cases.add("empty-maximum", stage="emit")
def empty_maximum():
    def program(x):
        return x.max(0)

    return program, (torch.ones(0, 4),)


@cases.add("leaf-write", stage="emit")
def leaf_write():
    def program(x):
        try:
            x.add_(1)
        except RuntimeError as e:
            return str(e)
        return x

    return program, (ramp().requires_grad_(),)


@cases.add("saved-value-write", stage="emit")
def saved_value_write():
    def program(x):
        y = x.exp()
        y.add_(1)
        y.sum().backward()
        return x.grad

    return program, (ramp().requires_grad_(),)


@cases.add("input-write-before-backward", stage="emit", backward=True)
def input_write_before_backward():
    def program(x, w):
        y = x * w
        w.add_(1)
        return y

    return program, (ramp().requires_grad_(), torch.ones(3, 4))


@cases.add("multi-view-write", stage="emit")
def multi_view_write():
    def program(x):
        y = x * 2
        a, b = y.chunk(2, 1)
        a.add_(1)
        return a * b

    return program, (ramp().requires_grad_(),)


@cases.add("view-write-with-gradient", stage="emit", backward=True)
def view_write_with_gradient():
    def program(x):
        y = x * 2
        v = y[0]
        v.mul_(3)
        return (y, v)

    return program, (ramp().requires_grad_(),)


@cases.add("view-across-a-break", stage="emit")
def view_across_a_break():
    def program(x):
        y = x * 2
        v = y[0]
        print("hi")
        y.add_(1)
        print("ho")
        v.mul_(2)
        return (y, v, v._base is y)

    return program, (ramp(),)


@cases.add("views-in-a-list", stage="emit")
def views_in_a_list():
    def program(x):
        xs = [x[0], x[1], x[2]]
        for v in xs:
            v += 1
        xs[0] += xs[1]
        return (xs, x)

    return program, (ramp(),)


@cases.add("foreach-operations", stage="emit")
def foreach_operations():
    def program(x):
        xs = list(x.unbind(0))
        torch._foreach_add_(xs, 1.0)
        torch._foreach_mul_(xs, [1.0, 2.0, 3.0])
        return (xs, x)

    return program, (ramp(),)


@cases.add("complex-views")
def complex_views():
    def program(x):
        x.real.add_(1)
        x.imag[0] = 3
        v = torch.view_as_real(x)
        v[..., 0] *= 2
        return (x, v, x.conj(), x.mT)

    return program, (torch.ones(2, 3, dtype=torch.complex64),)


@cases.add("inplace-error-caught")
def inplace_error_caught():
    def program(x):
        x.add_(1)
        try:
            x.add_(torch.ones(5))
        except RuntimeError as e:
            x.mul_(2)
            return (str(e), x)

    return program, (ramp(),)


@cases.add("inplace-by-index", stage="emit")
def inplace_by_index():
    def program(x):
        x.masked_fill_(x > 0.7, -1.0)
        x.clamp_(min=0)
        x.index_fill_(0, torch.tensor([0]), 9.0)
        x.index_add_(0, torch.tensor([0, 0]), torch.ones(2, 4))
        x.scatter_(1, torch.zeros(3, 1, dtype=torch.long), 7.0)
        x.index_put_((torch.tensor([1]), torch.tensor([2])), torch.tensor(50.0))
        x.index_put_(
            (torch.tensor([1, 1]), torch.tensor([2, 2])),
            torch.tensor([1.0, 1.0]),
            accumulate=True,
        )
        return x

    return program, (ramp(),)


@pytest.mark.parametrize("name", cases)
def test_construct(name):
    cases.check(name)
