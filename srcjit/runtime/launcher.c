/* Turns compiled kernels into Python callables.

   A kernel library exports, for each kernel, `void call_<name>(const Slot *)`. `bind` wraps
   the address of one into an object that is called with tensors and numbers; the call checks
   the dtype and device of each tensor and passes its data pointer. Compiled once a machine.

   Pointers come from PyTorch's DLPack exchange table (a C call, PyTorch >= 2.10, measured at
   43 ns a tensor) or else from the tensor's `data_ptr` method (70 ns). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#include "dlpack.h"

typedef union {
    void *pointer;
    int64_t integer;
    double real;
} Slot;

enum { CPU = 1, LONG_WORK = 1 << 16 };

static PyTypeObject *tensor_type;      /* torch.Tensor */
static const Exchange *exchange;       /* NULL: use the methods */
static PyObject *name_data_ptr, *name_dtype;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void (*entry)(const Slot *);
    PyObject *name;                    /* str */
    PyObject *parameters;              /* tuple of (name, kind, code, bits, torch dtype) */
    PyObject *keep;                    /* what holds the library in memory */
    Py_ssize_t count;
    struct Parameter { char kind; uint8_t code, bits; PyObject *dtype; } parameter[];
} Kernel;

static PyObject *fail(Kernel *kernel, Py_ssize_t i, PyObject *given) {
    PyObject *row = PyTuple_GET_ITEM(kernel->parameters, i);
    PyObject *want = PyTuple_GET_ITEM(row, 4), *dtype = NULL;
    if (strchr("pw", kernel->parameter[i].kind)) {
        dtype = PyObject_GetAttr(given, name_dtype);
        if (!dtype) PyErr_Clear();
    }
    PyErr_Format(PyExc_TypeError, "kernel %U: %U must be a CPU tensor of %S, got %s%S",
                 kernel->name, PyTuple_GET_ITEM(row, 0), want,
                 dtype ? "a tensor of " : "", dtype ? dtype : (PyObject *)Py_TYPE(given));
    Py_XDECREF(dtype);
    return NULL;
}

/* Returns the number of elements, or -1 with an exception set. */
static int64_t take_tensor(Kernel *kernel, Py_ssize_t i, PyObject *given, Slot *slot) {
    struct Parameter *want = &kernel->parameter[i];
    if (!PyObject_TypeCheck(given, tensor_type)) return fail(kernel, i, given), -1;
    if (exchange) {
        Tensor tensor;
        if (exchange->tensor_from_object(given, &tensor) < 0) {
            PyErr_Clear();             /* a device or layout that DLPack does not know */
            return fail(kernel, i, given), -1;
        }
        if (tensor.device.type != CPU || tensor.dtype.code != want->code ||
            tensor.dtype.bits != want->bits)
            return fail(kernel, i, given), -1;
        slot->pointer = (char *)tensor.data + tensor.byte_offset;
        int64_t elements = 1;
        for (int32_t d = 0; d < tensor.ndim; d++) elements *= tensor.shape[d];
        return elements;
    }
    PyObject *dtype = PyObject_GetAttr(given, name_dtype);
    if (!dtype) return -1;
    Py_DECREF(dtype);                  /* dtypes are immortal: only the identity matters */
    if (dtype != want->dtype) return fail(kernel, i, given), -1;
    PyObject *address = PyObject_VectorcallMethod(name_data_ptr, &given, 1, NULL);
    if (!address) return -1;
    slot->pointer = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *kernel_call(PyObject *self, PyObject *const *args, size_t flags,
                             PyObject *keywords) {
    Kernel *kernel = (Kernel *)self;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count != kernel->count || (keywords && PyTuple_GET_SIZE(keywords)))
        return PyErr_Format(PyExc_TypeError, "kernel %U takes %zd positional arguments, got %zd",
                            kernel->name, kernel->count, count);
    Slot slots[count + 1];
    int64_t elements = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        switch (kernel->parameter[i].kind) {
        case 'p':
        case 'w': {
            int64_t own = take_tensor(kernel, i, args[i], &slots[i]);
            if (own < 0) return NULL;
            elements += own;
            break;
        }
        case 'i':
            slots[i].integer = PyLong_AsLongLong(args[i]);
            if (slots[i].integer == -1 && PyErr_Occurred()) return NULL;
            break;
        default:
            slots[i].real = PyFloat_AsDouble(args[i]);
            if (slots[i].real == -1.0 && PyErr_Occurred()) return NULL;
        }
    }
    if (elements >= LONG_WORK) {
        Py_BEGIN_ALLOW_THREADS
        kernel->entry(slots);
        Py_END_ALLOW_THREADS
    } else {
        kernel->entry(slots);
    }
    Py_RETURN_NONE;
}

static void kernel_free(PyObject *self) {
    Kernel *kernel = (Kernel *)self;
    Py_XDECREF(kernel->name);
    Py_XDECREF(kernel->parameters);
    Py_XDECREF(kernel->keep);
    PyObject_Free(self);
}

static PyObject *kernel_repr(PyObject *self) {
    return PyUnicode_FromFormat("<compiled kernel %U>", ((Kernel *)self)->name);
}

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "srcjit.runtime.Kernel",
    .tp_doc = "A compiled kernel, called with tensors and numbers.",
    .tp_basicsize = offsetof(Kernel, parameter),
    .tp_itemsize = sizeof(struct Parameter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = kernel_free,
    .tp_repr = kernel_repr,
};

/* bind(address, name, parameters, keep) -> Kernel */
static PyObject *bind(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *address, *name, *parameters, *keep;
    if (!PyArg_ParseTuple(args, "O!UO!O", &PyLong_Type, &address, &name, &PyTuple_Type,
                          &parameters, &keep))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(parameters);
    Kernel *kernel = PyObject_NewVar(Kernel, &kernel_type, count);
    if (!kernel) return NULL;
    kernel->vectorcall = kernel_call;
    kernel->count = count;
    Py_INCREF(name), kernel->name = name;
    Py_INCREF(parameters), kernel->parameters = parameters;
    Py_INCREF(keep), kernel->keep = keep;
    kernel->entry = (void (*)(const Slot *))PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) goto bad;
    for (Py_ssize_t i = 0; i < count; i++) {
        int kind;
        PyObject *row = PyTuple_GET_ITEM(parameters, i), *label;
        struct Parameter *p = &kernel->parameter[i];
        if (!PyArg_ParseTuple(row, "UCbbO", &label, &kind, &p->code, &p->bits, &p->dtype))
            goto bad;
        p->kind = (char)kind;
    }
    return (PyObject *)kernel;
bad:
    Py_DECREF(kernel);
    return NULL;
}

/* connect(torch.Tensor, capsule or None): must be called once, before `bind`. */
static PyObject *connect(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &tensor_type, &capsule)) return NULL;
    Py_INCREF(tensor_type);
    exchange = NULL;
    if (capsule != Py_None) {
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        if (!exchange) return NULL;
        if (exchange->major != 1 || !exchange->tensor_from_object) exchange = NULL;
    }
    return PyBool_FromLong(exchange != NULL);
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, "bind(address, name, parameters, keep) -> Kernel"},
    {"connect", connect, METH_VARARGS, "connect(Tensor, exchange capsule or None) -> bool"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_launcher", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_srcjit_launcher(void) {
    name_data_ptr = PyUnicode_InternFromString("data_ptr");
    name_dtype = PyUnicode_InternFromString("dtype");
    if (!name_data_ptr || !name_dtype || PyType_Ready(&kernel_type) < 0) return NULL;
    return PyModule_Create(&definition);
}
