/* Launches Triton kernels without Python.

   `bind` makes an object for one kernel and one kind of arguments, which is called with a grid,
   tensors and numbers. It reads the tensors' addresses, tests what the kernel was compiled for,
   packs the parameters and has the driver start the kernel on the current stream. `front`
   makes what stands in for `launch` of `triton.py` and finds that object.

   Whatever is unusual, and whatever the driver refuses, is left to the Python functions behind
   them, which do everything, and say what is wrong.

   NOTE: from the first address that is read to the launch, no Python code runs but what asks for
   the current device, if there are several. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

/* cuLaunchKernel: function, grid, block, bytes of shared memory, stream, parameters, extra */
typedef int (*Start)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);

enum { WARP = 32, ALIGNMENT = 16, DIVISIBLE = 1, SMALL = 2 };

static PyTypeObject *tensor_type;      /* torch.Tensor */
static const Exchange *exchange;
static Start start;
static PyObject *name_bindings;

/* ── one kernel, one kind of arguments ─────────────────────────────────────────────────── */

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *otherwise;               /* called where this cannot launch */
    PyObject *current_device;          /* NULL: there is only one */
    void *function;
    unsigned threads, shared;
    int32_t device_type, device;       /* as DLPack says it */
    bool aligned;                      /* what the addresses are, together */
    Py_ssize_t given;                  /* arguments; parameters behind them are NULL */
    struct Parameter { char kind; uint8_t flags; } parameter[];
} Launch;

/* Whether a number is what the kernel takes, and was compiled for. */
static bool take_int(struct Parameter want, PyObject *given, uint64_t *slot) {
    static const char letters[] = "bhilBHIK", bits[] = {8, 16, 32, 64, 8, 16, 32, 64};
    const char *letter = strchr(letters, want.kind);
    if (!letter || !PyLong_Check(given)) return false;
    int overflow, width = bits[letter - letters];
    long long value = PyLong_AsLongLongAndOverflow(given, &overflow);
    if (overflow) return false;
    long long most = INT64_MAX >> (64 - width);
    bool is_signed = letter < letters + 4;
    long long high = is_signed || width == 64 ? most : 2 * most + 1;
    if (value > high || value < (is_signed ? -most - 1 : 0)) return false;
    if ((want.flags & DIVISIBLE) && value % ALIGNMENT) return false;
    if ((want.flags & SMALL) && (value < INT32_MIN || value > INT32_MAX)) return false;
    *slot = (uint64_t)value;           /* the driver takes the first bytes */
    return true;
}

static bool take_float(char kind, PyObject *given, uint64_t *slot) {
    if (!PyFloat_Check(given) && !PyLong_Check(given)) return false;
    double value = PyFloat_AsDouble(given);
    if (value == -1.0 && PyErr_Occurred()) return false;
    float narrow = (float)value;
    if (kind == 'd') memcpy(slot, &value, sizeof value);
    else memcpy(slot, &narrow, sizeof narrow);
    return true;
}

static bool take_tensor(Launch *self, PyObject *given, uint64_t *slot) {
    Tensor tensor;
    if (!PyObject_TypeCheck(given, tensor_type) || exchange->tensor_from_object(given, &tensor) < 0)
        return false;
    *slot = (uint64_t)((uintptr_t)tensor.data + tensor.byte_offset);
    return tensor.device.type == self->device_type && tensor.device.index == self->device;
}

static bool pack(Launch *self, PyObject *const *args, uint64_t *slots) {
    uint64_t addresses = 0;
    for (Py_ssize_t i = 0; i < self->given; i++) {
        struct Parameter want = self->parameter[i];
        switch (want.kind) {
        case 'O':
            if (!take_tensor(self, args[i], &slots[i])) return false;
            addresses |= slots[i];
            break;
        case 'f':
        case 'd':
            if (!take_float(want.kind, args[i], &slots[i])) return false;
            break;
        default:
            if (!take_int(want, args[i], &slots[i])) return false;
        }
    }
    for (Py_ssize_t i = self->given; i < Py_SIZE(self); i++) slots[i] = 0;
    return (addresses % ALIGNMENT == 0) == self->aligned;
}

/* An int or a tuple of up to three; false also where a launcher in Python says what is wrong. */
static bool take_grid(PyObject *given, unsigned grid[3]) {
    PyObject *const *sides = &given;
    Py_ssize_t count = 1;
    if (PyTuple_CheckExact(given)) {
        sides = ((PyTupleObject *)given)->ob_item;
        count = PyTuple_GET_SIZE(given);
    }
    long long all = 1;
    for (Py_ssize_t i = 0; i < 3; i++) {
        int overflow = 0;
        long long side = 1;
        if (i < count) {
            if (!PyLong_CheckExact(sides[i])) return false;
            side = PyLong_AsLongLongAndOverflow(sides[i], &overflow);
        }
        if (overflow || side < 0 || side > INT32_MAX) return false;
        all *= side;
        if (all > INT32_MAX) return false;
        grid[i] = (unsigned)side;
    }
    return count <= 3;
}

static bool is_current(Launch *self) {
    if (!self->current_device) return true;
    PyObject *device = PyObject_CallNoArgs(self->current_device);
    bool same = device && PyLong_Check(device) && PyLong_AsLong(device) == self->device;
    Py_XDECREF(device);
    return same;
}

/* Whether the kernel has been launched. */
static bool launch(Launch *self, PyObject *const *args) {
    unsigned grid[3];
    uint64_t slots[Py_SIZE(self) + 1];
    void *parameters[Py_SIZE(self) + 1], *stream;
    if (!take_grid(args[0], grid) || !is_current(self) || !pack(self, args + 1, slots)) return false;
    if (!grid[0] || !grid[1] || !grid[2]) return true;
    if (exchange->current_stream(self->device_type, self->device, &stream)) return false;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) parameters[i] = &slots[i];
    int problem;
    /* The driver waits where too much is queued. */
    Py_BEGIN_ALLOW_THREADS
    problem = start(self->function, grid[0], grid[1], grid[2], self->threads, 1, 1, self->shared,
                    stream, parameters, NULL);
    Py_END_ALLOW_THREADS
    return problem == 0;
}

static PyObject *launch_call(PyObject *object, PyObject *const *args, size_t flags,
                             PyObject *names) {
    Launch *self = (Launch *)object;
    if (PyVectorcall_NARGS(flags) == self->given + 1 && (!names || !PyTuple_GET_SIZE(names))) {
        if (launch(self, args)) Py_RETURN_NONE;
        PyErr_Clear();                 /* a tensor without memory, a number without a float */
    }
    return PyObject_Vectorcall(self->otherwise, args, flags, names);
}

static int launch_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(((Launch *)object)->otherwise);
    Py_VISIT(((Launch *)object)->current_device);
    return 0;
}

static int launch_clear(PyObject *object) {
    /* Whatever still calls it is as dead. */
    Py_XSETREF(((Launch *)object)->otherwise, Py_NewRef(Py_None));
    return 0;
}

static void launch_free(PyObject *object) {
    PyObject_GC_UnTrack(object);
    Py_CLEAR(((Launch *)object)->otherwise);
    Py_CLEAR(((Launch *)object)->current_device);
    PyObject_GC_Del(object);
}

static PyObject *launch_repr(PyObject *object) {
    return PyUnicode_FromFormat("<launch, or else %R>", ((Launch *)object)->otherwise);
}

static PyTypeObject launch_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "srcjit.runtime.Launch",
    .tp_doc = "Launches a kernel, called with a grid, tensors and numbers.",
    .tp_basicsize = offsetof(Launch, parameter),
    .tp_itemsize = sizeof(struct Parameter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Launch, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = launch_traverse,
    .tp_clear = launch_clear,
    .tp_dealloc = launch_free,
    .tp_repr = launch_repr,
};

/* bind(otherwise, function, warps, shared, kinds, flags, device, aligned, current_device) */
static PyObject *bind(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *otherwise, *current_device;
    unsigned long long function;
    unsigned warps, shared;
    const char *kinds, *flags;
    Py_ssize_t count, given;
    int device_type, device, aligned;
    if (!PyArg_ParseTuple(args, "OKIIs#y#(ii)pO", &otherwise, &function, &warps, &shared, &kinds,
                          &count, &flags, &given, &device_type, &device, &aligned,
                          &current_device))
        return NULL;
    if (given > count)
        return PyErr_Format(PyExc_ValueError, "%zd arguments for `%s`", given, kinds);
    for (Py_ssize_t i = 0; i < count; i++)
        if (!strchr("Obhil" "BHIK" "fd", kinds[i]))
            return PyErr_Format(PyExc_ValueError, "no kind of argument: %c", kinds[i]);
    Launch *self = PyObject_GC_NewVar(Launch, &launch_type, count);
    if (!self) return NULL;
    self->vectorcall = launch_call;
    self->otherwise = Py_NewRef(otherwise);
    self->current_device = current_device == Py_None ? NULL : Py_NewRef(current_device);
    self->function = (void *)(uintptr_t)function;
    self->threads = WARP * warps;
    self->shared = shared;
    self->device_type = device_type;
    self->device = device;
    self->aligned = aligned;
    self->given = given;
    for (Py_ssize_t i = 0; i < count; i++) {
        self->parameter[i].kind = kinds[i];
        self->parameter[i].flags = i < given ? (uint8_t)flags[i] : 0;
    }
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

/* ── all kernels ───────────────────────────────────────────────────────────────────────── */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *otherwise;               /* binds what is new */
} Front;

/* Whether the keywords of a call say what is in a dictionary; -1 with an exception set. */
static int are_constants(PyObject *known, PyObject *names, PyObject *const *values) {
    Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0;
    if (PyDict_GET_SIZE(known) != count) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyDict_GetItemWithError(known, PyTuple_GET_ITEM(names, i));
        if (!value) return PyErr_Occurred() ? -1 : 0;
        Py_INCREF(value);
        int same = PyObject_RichCompareBool(value, values[i], Py_EQ);
        Py_DECREF(value);
        if (same <= 0) return same;
    }
    return 1;
}

/* What a kernel has for these constants: a new reference, or NULL, maybe with an exception. */
static PyObject *find(PyObject *kernel, PyObject *names, PyObject *const *values) {
    PyObject *bindings = PyObject_GetAttr(kernel, name_bindings), *found = NULL;
    if (!bindings) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
        return NULL;
    }
    for (Py_ssize_t i = 0; !found && PyList_Check(bindings) && i < PyList_GET_SIZE(bindings); i++) {
        PyObject *row = Py_NewRef(PyList_GET_ITEM(bindings, i));
        int same = are_constants(PyTuple_GET_ITEM(row, 0), names, values);
        if (same > 0) found = Py_NewRef(PyTuple_GET_ITEM(row, 1));
        Py_DECREF(row);
        if (same < 0) break;
    }
    Py_DECREF(bindings);
    return found;
}

/* front(kernel, grid, *args, **constants) */
static PyObject *front_call(PyObject *object, PyObject *const *args, size_t flags,
                            PyObject *names) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count) {
        PyObject *run = find(args[0], names, args + count);
        if (run) {
            PyObject *nothing = PyObject_Vectorcall(run, args + 1, count - 1, NULL);
            Py_DECREF(run);
            return nothing;
        }
        if (PyErr_Occurred()) return NULL;
    }
    return PyObject_Vectorcall(((Front *)object)->otherwise, args, flags, names);
}

static void front_free(PyObject *object) {
    Py_XDECREF(((Front *)object)->otherwise);
    PyObject_Free(object);
}

static PyTypeObject front_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "srcjit.runtime.Front",
    .tp_doc = "front(kernel, grid, *args, **constants): launches a kernel.",
    .tp_basicsize = sizeof(Front),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Front, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = front_free,
};

static PyObject *front(PyObject *module, PyObject *otherwise) {
    (void)module;
    Front *self = PyObject_New(Front, &front_type);
    if (!self) return NULL;
    self->vectorcall = front_call;
    self->otherwise = Py_NewRef(otherwise);
    return (PyObject *)self;
}

/* ── the module ────────────────────────────────────────────────────────────────────────── */

/* connect(torch.Tensor, exchange capsule, address of cuLaunchKernel) -> whether these can be used;
   must be called before anything that `bind` returned; later calls must say the same. */
static PyObject *connect(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *type, *capsule;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "O!OK", &PyType_Type, &type, &capsule, &address)) return NULL;
    const Exchange *given = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!given) return NULL;
    if (given->major != 1 || !given->tensor_from_object || !given->current_stream || !address)
        Py_RETURN_FALSE;
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef(type));
    exchange = given;
    start = (Start)(uintptr_t)address;
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS,
     "bind(otherwise, function, warps, shared, kinds, flags, device, aligned, current_device)"},
    {"front", front, METH_O, "front(launch) -> what does the same, faster"},
    {"connect", connect, METH_VARARGS,
     "connect(Tensor, exchange capsule, address of cuLaunchKernel) -> bool"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_cuda_launcher", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_srcjit_cuda_launcher(void) {
    name_bindings = PyUnicode_InternFromString("srcjit_bindings");
    if (!name_bindings || PyType_Ready(&launch_type) < 0 || PyType_Ready(&front_type) < 0)
        return NULL;
    return PyModule_Create(&definition);
}
