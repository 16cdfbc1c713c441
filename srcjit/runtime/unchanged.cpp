/* Says whether what a guard has looked at is as it was.

   A snapshot is a list of rows, each an object that an earlier row leads to: a dictionary with
   the version of its content, or an instance with its class, the version of the class and its
   dictionary. CPython gives every change of a dictionary or of a class a version that no other
   dictionary or class has ever had, so equal versions mean equal content. Its leaves are what
   the rows lead to; of tensors among them, it also knows what is theirs alone: sizes, strides,
   dtype, device, dispatch keys (layout, conjugation, inference) and whether they want a gradient.

   NOTE: objects are borrowed. The first are arguments of the call; a later one is alive because
   what leads to it has the content that it had. So nothing is kept from being freed, and no
   row may be read before those in front of it have been compared. A tensor's implementation is
   alive if the tensor points to it, so that is compared before it is read.

   A pass over a large model waits for its caches, so what is compared is packed. */

#include "tensors.h"
#include <algorithm>

#if PY_VERSION_HEX < 0x030D0000 && !defined(Py_GIL_DISABLED)
#define VERSIONS 1
#else
#define VERSIONS 0                    /* dictionaries have none in this Python */
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

namespace {

/* addresses(tuple of tensors, *tensors) -> bytes: what `data_ptr` returns for each */
PyObject *addresses(PyObject *, PyObject *const *args, Py_ssize_t count) {
    if (count < 1 || !PyTuple_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "the first argument is no tuple");
    Py_ssize_t first = PyTuple_GET_SIZE(args[0]), all = first + count - 1;
    PyObject *made = PyBytes_FromStringAndSize(NULL, all * (Py_ssize_t)sizeof(void *));
    if (!made) return NULL;
    char *out = PyBytes_AS_STRING(made);
    try {
        for (Py_ssize_t i = 0; i < all; i++, out += sizeof(void *)) {
            PyObject *tensor = i < first ? PyTuple_GET_ITEM(args[0], i) : args[i - first + 1];
            if (!PyObject_TypeCheck(tensor, tensor_type)) {
                Py_DECREF(made);
                return PyErr_Format(PyExc_TypeError, "tensor %zd is none", i);
            }
            const void *address = address_of(implementation(tensor));
            memcpy(out, &address, sizeof address);
        }
    } catch (const std::exception &problem) {
        Py_DECREF(made);
        PyErr_SetString(PyExc_RuntimeError, problem.what());
        return NULL;
    }
    return made;
}

/* checked(check, gradients) -> a function of tensors: whether `check` says so of them, and those
   require a gradient that have a 1 in `gradients` */
PyObject *check_all(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    PyObject *wanted = PyTuple_GET_ITEM(self, 1);
    PyObject *found = PyObject_Vectorcall(PyTuple_GET_ITEM(self, 0), args, count, NULL);
    if (found != Py_True) return found;
    bool same = count == PyBytes_GET_SIZE(wanted);
    for (Py_ssize_t i = 0; same && i < count; i++)
        same = PyObject_TypeCheck(args[i], tensor_type) &&
               wants_gradient(implementation(args[i])) == (PyBytes_AS_STRING(wanted)[i] != 0);
    Py_DECREF(found);
    return PyBool_FromLong(same);
}

/* answers(((function, *arguments), ...), wanted) -> a function: whether all answer as wanted */
PyObject *ask_all(PyObject *self, PyObject *) {
    PyObject *calls = PyTuple_GET_ITEM(self, 0), *wanted = PyTuple_GET_ITEM(self, 1);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        PyObject **row = ((PyTupleObject *)PyTuple_GET_ITEM(calls, i))->ob_item;
        Py_ssize_t count = PyTuple_GET_SIZE(PyTuple_GET_ITEM(calls, i)) - 1;
        PyObject *found = PyObject_Vectorcall(row[0], row + 1, count, NULL);
        if (!found) return NULL;
        int same = PyObject_RichCompareBool(found, PyTuple_GET_ITEM(wanted, i), Py_EQ);
        Py_DECREF(found);
        if (same < 0) return NULL;
        if (!same) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

PyMethodDef check_all_method = {"check_all", (PyCFunction)(void (*)(void))check_all, METH_FASTCALL,
                                "Whether tensors have the facts and the gradients wanted."};
PyMethodDef ask_all_method = {"ask_all", ask_all, METH_NOARGS,
                              "Whether functions answer as they did."};

PyObject *bound(PyMethodDef *method, PyObject *first, PyObject *second) {
    PyObject *pair = PyTuple_Pack(2, first, second);
    PyObject *made = pair ? PyCFunction_New(method, pair) : NULL;
    Py_XDECREF(pair);
    return made;
}

PyObject *checked(PyObject *, PyObject *args) {
    PyObject *check, *wanted;
    if (!PyArg_ParseTuple(args, "OO!", &check, &PyBytes_Type, &wanted)) return NULL;
    return bound(&check_all_method, check, wanted);
}

PyObject *answers(PyObject *, PyObject *args) {
    PyObject *calls, *wanted;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &calls, &PyTuple_Type, &wanted)) return NULL;
    bool fits = PyTuple_GET_SIZE(calls) == PyTuple_GET_SIZE(wanted);
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(calls); i++) {
        PyObject *row = PyTuple_GET_ITEM(calls, i);
        fits = PyTuple_Check(row) && PyTuple_GET_SIZE(row) > 0;
    }
    if (!fits) return PyErr_Format(PyExc_TypeError, "these are no calls with their answers");
    return bound(&ask_all_method, calls, wanted);
}

enum { LOOKED_AT = 160 };              /* bytes; all that autograd knows has been more for years */

/* Has a tensor want a gradient, or no longer, and copies what autograd knows of it. */
const void *autograd_copy(PyObject *tensor, PyObject *wanted, unsigned char *copy) {
    PyObject *same = PyObject_CallMethod(tensor, "requires_grad_", "O", wanted);
    Py_XDECREF(same);
    const void *meta = same ? implementation(tensor)->autograd_meta() : NULL;
    if (meta) memcpy(copy, meta, LOOKED_AT);
    return meta;
}

/* Where that says whether a tensor wants a gradient, by looking at what changes with it. */
size_t find_gradient_place(PyObject *tensor) {
    unsigned char first[LOOKED_AT], second[LOOKED_AT], third[LOOKED_AT];
    const void *meta = autograd_copy(tensor, Py_True, first);
    if (!meta || meta != autograd_copy(tensor, Py_False, second) ||
        meta != autograd_copy(tensor, Py_True, third) || memcmp(first, third, LOOKED_AT))
        return 0;
    size_t found = 0, changes = 0;
    for (size_t i = sizeof(void *); i < LOOKED_AT; i++)
        if (first[i] != second[i]) found = i, changes++;
    return changes == 1 && first[found] == 1 && second[found] == 0 ? found : 0;
}

/* connect(class, tensors) -> where they have their implementation, or 0 if it was not found; they
   are changed */
PyObject *connect(PyObject *, PyObject *args) {
    PyTypeObject *type;
    PyObject *tensors;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &type, &PyTuple_Type, &tensors)) return NULL;
    Py_ssize_t found = 0, places = 0;
    for (Py_ssize_t offset = sizeof(PyObject);
         offset + (Py_ssize_t)sizeof(void *) <= type->tp_basicsize; offset += sizeof(void *)) {
        bool all = PyTuple_GET_SIZE(tensors) > 0;
        for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(tensors); i++) {
            PyObject *tensor = PyTuple_GET_ITEM(tensors, i);
            if (!PyObject_TypeCheck(tensor, type))
                return PyErr_Format(PyExc_TypeError, "argument %zd is no tensor", i);
            PyObject *address = PyObject_GetAttrString(tensor, "_cdata");
            if (!address) return NULL;
            void *wanted = PyLong_AsVoidPtr(address);
            Py_DECREF(address);
            if (PyErr_Occurred()) return NULL;
            all = wanted && word_at(tensor, offset) == wanted;
        }
        if (all) found = offset, places++;
    }
    if (places == 1) {
        Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef((PyObject *)type));
        place = found;
        gradient_place = find_gradient_place(PyTuple_GET_ITEM(tensors, 0));
        PyErr_Clear();                /* where no tensor may want one, it stays unknown */
    }
    return PyLong_FromSsize_t(places == 1 ? found : 0);
}

/* ── snapshots ─────────────────────────────────────────────────────────────────────────── */

#if VERSIONS

struct Type {
    PyTypeObject *type;               /* held */
    unsigned int version;
};

struct Row {
    PyObject *object;
    PyDictObject *dict;               /* the object itself, or what its `__dict__` is */
    uint64_t dict_version;
    PyTypeObject *type;               /* NULL: it is a dictionary of a class that it has for good */
    Py_ssize_t place;                 /* of the pointer to its `__dict__` */
};

struct Snapshot {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t roots, types, rows, leaves;
    PyObject **leaf;                  /* borrowed: what a hit returns */
    Facts *facts;                     /* of each leaf, or NULL: only which they are */
    int64_t *numbers;                 /* sizes and strides of each leaf */
    Type *type;
    Row *row;
};

PyTypeObject snapshot_type = {PyVarObject_HEAD_INIT(NULL, 0)};

unsigned int version_of(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

/* Puts it among the types of a snapshot, where there is place for it; false if it has no version. */
bool note(Snapshot *self, PyTypeObject *type) {
    for (Py_ssize_t i = self->types; i-- > 0;)
        if (self->type[i].type == type) return true;
    unsigned int version = version_of(type);
    if (!version) return false;
    self->type[self->types++] = {(PyTypeObject *)Py_NewRef((PyObject *)type), version};
    return true;
}

/* Notes what an object is like; false if it has no dictionary or no versions. */
bool take(Snapshot *self, Row *row, PyObject *object) {
    row->object = object;
    row->place = 0;
    row->dict = (PyDictObject *)object;
    if (!PyDict_Check(object)) {
        PyObject **pointer = _PyObject_GetDictPtr(object);
        row->dict = pointer ? (PyDictObject *)*pointer : NULL;
        row->place = (int)((char *)pointer - (char *)object);
    }
    /* Only instances of classes that are made at run time may get another class. */
    bool fixed = !row->place && !PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE);
    row->type = fixed ? NULL : Py_TYPE(object);
    if (!note(self, Py_TYPE(object)) || !row->dict) return false;
    row->dict_version = row->dict->ma_version_tag;
    return true;
}

/* NOTE: all instances of a class have the pointer at the same place; while their attributes are
   not in a dictionary yet, or no longer, it is no dictionary's. */
inline bool is_same(const Row &row) {
    if (row.type) {
        if (Py_TYPE(row.object) != row.type) return false;
        if (row.place && word_at(row.object, row.place) != row.dict) return false;
    }
    return row.dict->ma_version_tag == row.dict_version;
}

/* If `addresses` are wanted, the facts of the leaves are known; then the leaves are held. */
bool is_same(const Snapshot *self, const void **addresses) {
    for (Py_ssize_t i = 0; i < self->types; i++)
        if (version_of(self->type[i].type) != self->type[i].version) return false;
    for (Py_ssize_t i = 0; i < self->rows; i++)
        if (!is_same(self->row[i])) return false;
    if (!self->facts) return true;
    const int64_t *numbers = self->numbers;
    Py_ssize_t held = 0;
    try {
        for (Py_ssize_t i = 0; i < self->leaves; i++) {
            const Facts &facts = self->facts[i];
            PyObject *leaf = self->leaf[i];
            if (Py_TYPE(leaf) != facts.type || implementation(leaf) != facts.tensor) break;
            const void **address = addresses ? addresses + i : NULL;
            if (!is_alike(facts, numbers, facts.tensor, address)) break;
            numbers += 2 * facts.dims;
            if (addresses) Py_INCREF(leaf);
            held++;
        }
    } catch (const std::exception &) {
        /* A tensor does not tell its sizes, or has no memory. */
    }
    if (held == self->leaves) return true;
    for (Py_ssize_t i = 0; addresses && i < held; i++) Py_DECREF(self->leaf[i]);
    return false;
}

bool is_about(const Snapshot *self, PyObject *const *roots) {
    for (Py_ssize_t i = 0; i < self->roots; i++)
        if (roots[i] != self->row[i].object) return false;
    return true;
}

/* For `replays.cpp`: the leaves, held, and where they lie, or NULL if anything has changed. No
   Python code runs. */
PyObject *const *locate(PyObject *object, PyObject *const *roots, Py_ssize_t count,
                        const void **addresses, Py_ssize_t leaves) {
    if (Py_TYPE(object) != &snapshot_type) return NULL;
    const Snapshot *self = (Snapshot *)object;
    bool same = self->facts && self->roots == count && self->leaves == leaves &&
                is_about(self, roots) && is_same(self, addresses);
    return same ? self->leaf : NULL;
}

/* snapshot(*roots) -> tuple of the leaves, or None if anything has changed */
PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Snapshot *self = (Snapshot *)object;
    if (PyVectorcall_NARGS(flags) != self->roots || (names && PyTuple_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "a snapshot of %zd objects is called with %zd",
                            self->roots, PyVectorcall_NARGS(flags));
    if (!is_about(self, args)) Py_RETURN_NONE;
    /* Whoever wants to know the facts has no use for the leaves. */
    Py_ssize_t count = self->facts ? 0 : self->leaves;
    /* Before anything is compared: making a tuple may run finalizers. */
    PyObject *leaves = PyTuple_New(count);
    if (!leaves) return NULL;
    if (!is_same(self, NULL)) {
        Py_DECREF(leaves);
        Py_RETURN_NONE;
    }
    for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(leaves, i, Py_NewRef(self->leaf[i]));
    return leaves;
}

void snapshot_free(PyObject *object) {
    Snapshot *self = (Snapshot *)object;
    for (Py_ssize_t i = 0; i < self->types; i++) Py_XDECREF(self->type[i].type);
    for (Py_ssize_t i = 0; self->facts && i < self->leaves; i++) Py_XDECREF(self->facts[i].type);
    PyMem_Free(self->leaf);
    PyMem_Free(self->facts);
    PyMem_Free(self->numbers);
    PyMem_Free(self->type);
    PyMem_Free(self->row);
    PyObject_Free(self);
}

bool prepare_type() {
    snapshot_type.tp_name = "srcjit.runtime.Snapshot";
    snapshot_type.tp_doc = "Whether objects are as they were: the tuple of its leaves, or None.";
    snapshot_type.tp_basicsize = sizeof(Snapshot);
    snapshot_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    snapshot_type.tp_vectorcall_offset = offsetof(Snapshot, vectorcall);
    snapshot_type.tp_call = PyVectorcall_Call;
    snapshot_type.tp_dealloc = snapshot_free;
    return PyType_Ready(&snapshot_type) == 0;
}

template <typename T> T *zeroed(Py_ssize_t count) {
    return (T *)PyMem_Calloc(count + 1, sizeof(T));
}

/* snapshot(number of roots, objects, leaves, whether the facts of the leaves are asked, too)
   -> Snapshot, or None if an object has no version, or a leaf no facts */
PyObject *snapshot(PyObject *, PyObject *args) {
    Py_ssize_t roots;
    int whole;
    PyObject *objects, *leaves;
    if (!PyArg_ParseTuple(args, "nO!O!p", &roots, &PyTuple_Type, &objects, &PyTuple_Type, &leaves,
                          &whole))
        return NULL;
    Py_ssize_t rows = PyTuple_GET_SIZE(objects), count = PyTuple_GET_SIZE(leaves);
    if (roots < 0 || roots > rows)
        return PyErr_Format(PyExc_ValueError, "%zd roots of %zd objects", roots, rows);
    Snapshot *self = PyObject_New(Snapshot, &snapshot_type);
    if (!self) return NULL;
    self->vectorcall = call;
    self->roots = roots;
    self->types = self->rows = self->leaves = 0;
    self->numbers = NULL;
    self->leaf = zeroed<PyObject *>(count);
    self->facts = whole ? zeroed<Facts>(count) : NULL;
    self->type = zeroed<Type>(rows);
    self->row = zeroed<Row>(rows);
    if (!self->leaf || (whole && !self->facts) || !self->type || !self->row) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (; self->rows < rows; self->rows++) {
        if (!take(self, &self->row[self->rows], PyTuple_GET_ITEM(objects, self->rows))) {
            Py_DECREF(self);
            Py_RETURN_NONE;
        }
    }
    bool fits = true;
    try {
        std::vector<int64_t> numbers;
        while (fits && self->leaves < count) {
            PyObject *leaf = self->leaf[self->leaves] = PyTuple_GET_ITEM(leaves, self->leaves);
            Facts *facts = whole ? &self->facts[self->leaves] : NULL;
            self->leaves++;
            fits = !facts || take(facts, &numbers, leaf);
        }
        self->numbers = zeroed<int64_t>(numbers.size());
        fits = fits && self->numbers;
        if (fits) std::copy(numbers.begin(), numbers.end(), self->numbers);
    } catch (const std::exception &) {
        fits = false;                 /* a tensor that does not tell its sizes */
    }
    if (!fits) {
        Py_DECREF(self);
        Py_RETURN_NONE;
    }
    return (PyObject *)self;
}

#endif

}  // namespace

#include "calls.h"

namespace {

PyMethodDef methods[] = {
    {"connect", connect, METH_VARARGS,
     "connect(class, tensors) -> where they have their implementation, or 0"},
    {"addresses", (PyCFunction)(void (*)(void))addresses, METH_FASTCALL,
     "addresses(tuple of tensors, *tensors) -> bytes: what `data_ptr` returns for each"},
    {"checked", checked, METH_VARARGS,
     "checked(check, gradients) -> a function of tensors: whether both are as wanted"},
    {"answers", answers, METH_VARARGS,
     "answers(((function, *arguments), ...), wanted) -> a function: whether all answer so"},
#if VERSIONS
    {"snapshot", snapshot, METH_VARARGS,
     "snapshot(number of roots, objects, leaves, with facts) -> Snapshot, or None"},
    {"module_call", make_module_call, METH_VARARGS,
     "module_call(otherwise, tracing_state, hooks) -> what a class may have as `__call__`"},
#endif
    {NULL, NULL, 0, NULL},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_unchanged", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

}  // namespace

PyMODINIT_FUNC PyInit_srcjit_unchanged(void) {
#if VERSIONS
    if (!prepare_type()) return NULL;
#endif
    PyObject *module = PyModule_Create(&definition);
#if VERSIONS
    PyObject *capsule = module ? PyCapsule_New((void *)locate, "srcjit.locate", NULL) : NULL;
    if (!capsule || PyModule_AddObject(module, "locate", capsule) < 0) {
        Py_XDECREF(capsule);
        Py_CLEAR(module);
    }
#endif
    return module;
}
