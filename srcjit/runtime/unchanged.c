/* Says whether what a guard has looked at is as it was.

   A snapshot is a list of rows, each an object that an earlier row leads to: a dictionary with
   the version of its content, or an instance with its class, the version of the class and its
   dictionary. CPython gives every change of a dictionary or of a class a version that no other
   dictionary or class has ever had, so equal versions mean equal content.

   NOTE: objects are borrowed. The first are arguments of the call; a later one is alive because
   what leads to it has the content that it had. So nothing is kept from being freed, and no
   row may be read before those in front of it have been compared. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

#if PY_VERSION_HEX >= 0x030D0000 || defined(Py_GIL_DISABLED)
#error "dictionaries have no versions in this Python"
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

typedef struct {
    PyObject *object;
    PyTypeObject *type;       /* held */
    unsigned int type_version;
    PyDictObject *dict;       /* the object itself, or what its `__dict__` is */
    uint64_t dict_version;
} Row;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Py_ssize_t roots, rows, leaves;
    PyObject **leaf;          /* borrowed: what a hit returns */
    Row row[];
} Snapshot;

static unsigned int version_of(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

static PyDictObject *dict_of(PyObject *object) {
    if (PyDict_Check(object)) return (PyDictObject *)object;
    PyObject **place = _PyObject_GetDictPtr(object);
    return place ? (PyDictObject *)*place : NULL;
}

static int is_same(const Row *row) {
    if (Py_TYPE(row->object) != row->type || version_of(row->type) != row->type_version)
        return 0;
    return dict_of(row->object) == row->dict && row->dict->ma_version_tag == row->dict_version;
}

/* snapshot(*roots) -> tuple of the leaves, or None if anything has changed */
static PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Snapshot *self = (Snapshot *)object;
    if (PyVectorcall_NARGS(flags) != self->roots || (names && PyTuple_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "a snapshot of %zd objects is called with %zd",
                            self->roots, PyVectorcall_NARGS(flags));
    for (Py_ssize_t i = 0; i < self->roots; i++)
        if (args[i] != self->row[i].object) Py_RETURN_NONE;
    /* Before anything is compared: making a tuple may run finalizers. */
    PyObject *leaves = PyTuple_New(self->leaves);
    if (!leaves) return NULL;
    for (Py_ssize_t i = 0; i < self->rows; i++)
        if (!is_same(&self->row[i])) {
            Py_DECREF(leaves);
            Py_RETURN_NONE;
        }
    for (Py_ssize_t i = 0; i < self->leaves; i++) {
        Py_INCREF(self->leaf[i]);
        PyTuple_SET_ITEM(leaves, i, self->leaf[i]);
    }
    return leaves;
}

static void snapshot_free(PyObject *object) {
    Snapshot *self = (Snapshot *)object;
    for (Py_ssize_t i = 0; i < self->rows; i++) Py_XDECREF(self->row[i].type);
    PyMem_Free(self->leaf);
    PyObject_Free(self);
}

static PyTypeObject snapshot_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "srcjit.runtime.Snapshot",
    .tp_doc = "Whether objects are as they were: the tuple of its leaves, or None.",
    .tp_basicsize = offsetof(Snapshot, row),
    .tp_itemsize = sizeof(Row),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Snapshot, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = snapshot_free,
};

/* snapshot(number of roots, objects, leaves) -> Snapshot, or None if one has no version */
static PyObject *snapshot(PyObject *module, PyObject *args) {
    (void)module;
    Py_ssize_t roots;
    PyObject *objects, *leaves;
    if (!PyArg_ParseTuple(args, "nO!O!", &roots, &PyTuple_Type, &objects, &PyTuple_Type, &leaves))
        return NULL;
    Py_ssize_t rows = PyTuple_GET_SIZE(objects), count = PyTuple_GET_SIZE(leaves);
    if (roots < 0 || roots > rows)
        return PyErr_Format(PyExc_ValueError, "%zd roots of %zd objects", roots, rows);
    Snapshot *self = PyObject_NewVar(Snapshot, &snapshot_type, rows);
    if (!self) return NULL;
    self->vectorcall = call;
    self->roots = roots;
    self->rows = 0;
    self->leaves = count;
    self->leaf = PyMem_New(PyObject *, count + 1);
    if (!self->leaf) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) self->leaf[i] = PyTuple_GET_ITEM(leaves, i);
    for (; self->rows < rows; self->rows++) {
        PyObject *object = PyTuple_GET_ITEM(objects, self->rows);
        Row *row = &self->row[self->rows];
        row->object = object;
        row->type = Py_TYPE(object);
        row->type_version = version_of(row->type);
        row->dict = dict_of(object);
        if (!row->type_version || !row->dict) {
            Py_DECREF(self);
            Py_RETURN_NONE;
        }
        Py_INCREF(row->type);
        row->dict_version = row->dict->ma_version_tag;
    }
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"snapshot", snapshot, METH_VARARGS,
     "snapshot(number of roots, objects, leaves) -> Snapshot, or None if one has no version"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_unchanged", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_srcjit_unchanged(void) {
    if (PyType_Ready(&snapshot_type) < 0) return NULL;
    return PyModule_Create(&definition);
}
