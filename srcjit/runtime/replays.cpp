/* Replays the recordings of a segment without Python: `graphs.py` says when that is right.

   An entry stands in front of the Python functions that do everything. Where the call comes
   from the thread and the device of its recordings, it allocates the results; where they and all
   inputs lie as they did for a recording of the stream, it launches that. Python gets what it has
   no recording for, with the results, and all other calls as they are.

   `shortcuts.h` has what replays whole programs.

   NOTE: from the first address that is read to the launch, no Python code runs. */

#include "tensors.h"

namespace {

/* cuGraphLaunch: an executable graph, a stream; 0 if it was launched */
typedef int (*Launch)(void *, void *);

enum { MOST = 32 };

struct Recording {
    uintptr_t stream;
    PyObject *replay;                 /* what PyTorch has for it */
    void *graph;                      /* or NULL: only `replay` can launch it */
    const void **addresses;           /* of inputs and results */
};

struct Entry {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *otherwise, *device, *current_device, *current_stream, *is_capturing;
    PyObject *missed;                 /* NULL: nothing is replayed */
    PyObject *allocations;            /* tuple of (callable, arguments) */
    Launch launch;
    unsigned long thread;
    unsigned long long hits;
    Py_ssize_t count, tensors, last;  /* tensors: inputs and results of each recording */
    const void **here;                /* their addresses in this call */
    Recording recording[MOST];
};

/* Whether something could be replayed now, and on which stream. */
bool here_and_now(Entry *self, uintptr_t *stream) {
    if (PyThread_get_thread_ident() != self->thread) return false;
    if (self->current_device != Py_None) {
        PyObject *device = PyObject_CallNoArgs(self->current_device);
        bool same = device == self->device ||
                    (device && PyObject_RichCompareBool(device, self->device, Py_EQ) == 1);
        Py_XDECREF(device);
        if (!same) return false;
    }
    PyObject *made = PyObject_CallOneArg(self->current_stream, self->device);
    if (!made || !PyLong_Check(made)) {
        Py_XDECREF(made);
        return false;
    }
    *stream = (uintptr_t)PyLong_AsVoidPtr(made);
    Py_DECREF(made);
    if (!*stream) return !PyErr_Occurred();
    PyObject *capturing = PyObject_CallNoArgs(self->is_capturing);
    Py_XDECREF(capturing);
    return capturing == Py_False;
}

/* Throws where a tensor has no memory; false if that is no tensor. */
bool note(const void **here, PyObject *tensor, PyTypeObject **known) {
    if (Py_TYPE(tensor) != *known) {
        if (!PyObject_TypeCheck(tensor, tensor_type)) return false;
        *known = Py_TYPE(tensor);
    }
    *here = address_of(implementation(tensor));
    return true;
}

/* The recording for the addresses that have been noted. */
Recording *recorded(Entry *self, uintptr_t stream) {
    size_t size = self->tensors * sizeof(void *);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Py_ssize_t at = self->last + i < self->count ? self->last + i : self->last + i - self->count;
        Recording *recording = &self->recording[at];
        if (recording->stream == stream && !memcmp(recording->addresses, self->here, size)) {
            self->last = at;
            return recording;
        }
    }
    return NULL;
}

Recording *find(Entry *self, PyObject *const *args, PyObject *results, uintptr_t stream) {
    Py_ssize_t made = PyTuple_GET_SIZE(results), given = self->tensors - made;
    PyTypeObject *known = tensor_type;
    try {
        for (Py_ssize_t i = 0; i < self->tensors; i++) {
            PyObject *tensor = i < given ? args[i] : PyTuple_GET_ITEM(results, i - given);
            if (!note(&self->here[i], tensor, &known)) return NULL;
        }
    } catch (const std::exception &) {
        return NULL;
    }
    return recorded(self, stream);
}

PyObject *allocated(PyObject *allocations) {
    Py_ssize_t count = PyTuple_GET_SIZE(allocations);
    PyObject *results = PyTuple_New(count);
    for (Py_ssize_t i = 0; results && i < count; i++) {
        PyObject *row = PyTuple_GET_ITEM(allocations, i);
        PyObject *made = PyObject_Call(PyTuple_GET_ITEM(row, 0), PyTuple_GET_ITEM(row, 1), NULL);
        if (!made) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, made);
    }
    return results;
}

PyObject *launched(Entry *self, const Recording *recording, PyObject *results) {
    self->hits++;
    PyObject *replay = Py_NewRef(recording->replay);
    bool done = false;
    if (recording->graph && self->launch) {
        Launch launch = self->launch;
        void *graph = recording->graph, *stream = (void *)recording->stream;
        Py_BEGIN_ALLOW_THREADS
        done = launch(graph, stream) == 0;
        Py_END_ALLOW_THREADS
    }
    if (!done) {
        /* If there is an error, PyTorch can tell. */
        PyObject *nothing = PyObject_CallNoArgs(replay);
        Py_XDECREF(nothing);
        if (!nothing) Py_CLEAR(results);
    }
    Py_DECREF(replay);
    return results;
}

/* Tells Python about new addresses: missed(stream, inputs, results) */
PyObject *missing(PyObject *missed, uintptr_t stream, PyObject *const *args, Py_ssize_t count,
                  PyObject *results) {
    PyObject *inputs = PyTuple_New(count), *made = NULL;
    for (Py_ssize_t i = 0; inputs && i < count; i++)
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(args[i]));
    if (inputs)
        made = PyObject_CallFunction(missed, "KOO", (unsigned long long)stream, inputs, results);
    Py_XDECREF(inputs);
    Py_DECREF(results);
    return made;
}

/* The results, or NULL with an exception, or NULL if nothing has been done. If `again`, it is the
   latest recording that is launched, wherever the tensors are. */
PyObject *answer(Entry *self, PyObject *const *args, Py_ssize_t count, bool again) {
    uintptr_t stream = 0;
    if (!here_and_now(self, &stream)) return NULL;
    /* Other threads may change the entry while something is called. */
    PyObject *allocations = Py_NewRef(self->allocations), *missed = Py_XNewRef(self->missed);
    PyObject *results = missed ? allocated(allocations) : NULL;
    if (results) {
        Recording *found = NULL;
        bool same = self->count && allocations == self->allocations &&
                    count + PyTuple_GET_SIZE(results) == self->tensors;
        if (same) found = find(self, args, results, stream);
        if (same && !found && again) found = &self->recording[self->last];
        results = found ? launched(self, found, results)
                        : missing(missed, stream, args, count, results);
    }
    Py_DECREF(allocations);
    Py_XDECREF(missed);
    return results;
}

PyObject *call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Entry *self = (Entry *)object;
    if (self->missed && !names) {
        PyObject *results = answer(self, args, PyVectorcall_NARGS(flags), false);
        if (results || PyErr_Occurred()) return results;
    }
    PyObject *otherwise = Py_NewRef(self->otherwise);
    PyObject *results = PyObject_Vectorcall(otherwise, args, flags, names);
    Py_DECREF(otherwise);
    return results;
}

/* ── from Python ───────────────────────────────────────────────────────────────────────── */

void forget_all(Entry *self) {
    Py_ssize_t count = self->count;
    self->count = self->last = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyMem_Free(self->recording[i].addresses);
        Py_CLEAR(self->recording[i].replay);
    }
}

/* become(otherwise): nothing is replayed any more */
PyObject *become(PyObject *object, PyObject *otherwise) {
    Entry *self = (Entry *)object;
    forget_all(self);
    Py_CLEAR(self->missed);
    Py_XSETREF(self->otherwise, Py_NewRef(otherwise));
    Py_RETURN_NONE;
}

/* prepare(thread, allocations, missed, address of cuGraphLaunch or 0) */
PyObject *prepare(PyObject *object, PyObject *args) {
    Entry *self = (Entry *)object;
    PyObject *allocations, *missed;
    unsigned long thread;
    unsigned long long launch;
    if (!PyArg_ParseTuple(args, "kO!OK", &thread, &PyTuple_Type, &allocations, &missed, &launch))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(allocations); i++) {
        PyObject *row = PyTuple_GET_ITEM(allocations, i);
        if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) != 2 ||
            !PyTuple_Check(PyTuple_GET_ITEM(row, 1)))
            return PyErr_Format(PyExc_TypeError, "allocation %zd is no call", i);
    }
    forget_all(self);
    self->thread = thread;
    self->launch = (Launch)(uintptr_t)launch;
    Py_XSETREF(self->allocations, Py_NewRef(allocations));
    Py_XSETREF(self->missed, Py_NewRef(missed));
    Py_RETURN_NONE;
}

/* add(stream, addresses of inputs and results, replay, executable graph or 0) */
PyObject *add(PyObject *object, PyObject *args) {
    Entry *self = (Entry *)object;
    unsigned long long stream, graph;
    Py_buffer given;
    PyObject *replay;
    if (!PyArg_ParseTuple(args, "Ky*OK", &stream, &given, &replay, &graph)) return NULL;
    Py_ssize_t tensors = given.len / (Py_ssize_t)sizeof(void *);
    if (self->count == MOST || (self->count && tensors != self->tensors)) {
        PyBuffer_Release(&given);
        return PyErr_Format(PyExc_ValueError, "no place for a recording of %zd tensors", tensors);
    }
    const void **addresses = (const void **)PyMem_Malloc(given.len + 1);
    const void **here = (const void **)PyMem_Realloc(self->here, given.len + 1);
    if (here) self->here = here;
    if (!addresses || !here) {
        PyMem_Free(addresses);
        PyBuffer_Release(&given);
        return PyErr_NoMemory();
    }
    memcpy(addresses, given.buf, given.len);
    PyBuffer_Release(&given);
    self->tensors = tensors;
    self->last = self->count;
    self->recording[self->count++] = {(uintptr_t)stream, Py_NewRef(replay),
                                      (void *)(uintptr_t)graph, addresses};
    Py_RETURN_NONE;
}

/* again(*inputs): costs what a replay costs, to memory that the recording has; for measuring */
PyObject *again(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    PyObject *results = answer((Entry *)object, args, count, true);
    if (results) return results;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "nothing can be replayed here");
    return NULL;
}

PyObject *hits(PyObject *object, void *) {
    return PyLong_FromUnsignedLongLong(((Entry *)object)->hits);
}

int entry_traverse(PyObject *object, visitproc visit, void *arg) {
    Entry *self = (Entry *)object;
    Py_VISIT(self->otherwise);
    Py_VISIT(self->current_device);
    Py_VISIT(self->current_stream);
    Py_VISIT(self->is_capturing);
    Py_VISIT(self->allocations);
    Py_VISIT(self->missed);
    for (Py_ssize_t i = 0; i < self->count; i++) Py_VISIT(self->recording[i].replay);
    return 0;
}

int entry_clear(PyObject *object) {
    Entry *self = (Entry *)object;
    forget_all(self);
    /* Whatever still calls it is as dead. */
    Py_XSETREF(self->otherwise, Py_NewRef(Py_None));
    Py_CLEAR(self->missed);
    return 0;
}

void entry_free(PyObject *object) {
    Entry *self = (Entry *)object;
    PyObject_GC_UnTrack(object);
    entry_clear(object);
    for (PyObject **held : {&self->otherwise, &self->device, &self->current_device,
                            &self->current_stream, &self->is_capturing, &self->allocations})
        Py_CLEAR(*held);
    PyMem_Free(self->here);
    PyObject_GC_Del(object);
}

PyMethodDef entry_methods[] = {
    {"become", become, METH_O, "become(otherwise): nothing is replayed any more"},
    {"prepare", prepare, METH_VARARGS,
     "prepare(thread, ((allocator, arguments), ...), missed, address of cuGraphLaunch or 0)"},
    {"again", (PyCFunction)(void (*)(void))again, METH_FASTCALL,
     "again(*inputs): replays the latest recording, wherever tensors are"},
    {"add", add, METH_VARARGS, "add(stream, addresses, replay, executable graph or 0)"},
    {NULL, NULL, 0, NULL},
};

PyGetSetDef entry_attributes[] = {
    {"hits", hits, NULL, "How often something was replayed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject entry_type = {PyVarObject_HEAD_INIT(NULL, 0)};

bool prepare_type() {
    entry_type.tp_name = "srcjit.runtime.Entry";
    entry_type.tp_doc = "Replays recordings, or calls what it stands in front of.";
    entry_type.tp_basicsize = sizeof(Entry);
    entry_type.tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;
    entry_type.tp_vectorcall_offset = offsetof(Entry, vectorcall);
    entry_type.tp_call = PyVectorcall_Call;
    entry_type.tp_dealloc = entry_free;
    entry_type.tp_traverse = entry_traverse;
    entry_type.tp_clear = entry_clear;
    entry_type.tp_methods = entry_methods;
    entry_type.tp_getset = entry_attributes;
    return PyType_Ready(&entry_type) == 0;
}

/* entry(otherwise, device, current_device or None: there is only one, current_stream,
   is_capturing) -> Entry */
PyObject *entry(PyObject *, PyObject *args) {
    PyObject *otherwise, *device, *current_device, *current_stream, *is_capturing;
    if (!PyArg_ParseTuple(args, "OO!OOO", &otherwise, &PyLong_Type, &device, &current_device,
                          &current_stream, &is_capturing))
        return NULL;
    Entry *self = PyObject_GC_New(Entry, &entry_type);
    if (!self) return NULL;
    memset(&self->vectorcall, 0, sizeof(Entry) - offsetof(Entry, vectorcall));
    self->vectorcall = call;
    self->otherwise = Py_NewRef(otherwise);
    self->device = Py_NewRef(device);
    self->current_device = Py_NewRef(current_device);
    self->current_stream = Py_NewRef(current_stream);
    self->is_capturing = Py_NewRef(is_capturing);
    self->allocations = PyTuple_New(0);
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

}  // namespace

#include "shortcuts.h"

namespace {

/* ── the module ────────────────────────────────────────────────────────────────────────── */

/* connect(class, where its instances have their implementation, `locate` or None) */
PyObject *connect(PyObject *, PyObject *args) {
    PyTypeObject *type;
    Py_ssize_t offset;
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O!nO", &PyType_Type, &type, &offset, &capsule)) return NULL;
    if (offset < (Py_ssize_t)sizeof(PyObject) ||
        offset + (Py_ssize_t)sizeof(void *) > type->tp_basicsize)
        return PyErr_Format(PyExc_ValueError, "nothing is at %zd", offset);
    if (capsule != Py_None) {
        locate = (Locate)PyCapsule_GetPointer(capsule, "srcjit.locate");
        if (!locate) return NULL;
    }
    Py_XSETREF(tensor_type, (PyTypeObject *)Py_NewRef((PyObject *)type));
    place = offset;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"connect", connect, METH_VARARGS,
     "connect(class, where its instances have their implementation, `locate` or None)"},
    {"shortcut", shortcut, METH_VARARGS,
     "shortcut(entry, unchanged, tired, questions, values, roots, leaves, inputs, picks)"},
    {"entry", entry, METH_VARARGS,
     "entry(otherwise, device, current_device, current_stream, is_capturing) -> Entry"},
    {NULL, NULL, 0, NULL},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_replays", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

}  // namespace

PyMODINIT_FUNC PyInit_srcjit_replays(void) {
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_ImportError, "without the GIL an entry would need locks");
    return NULL;
#else
    snapshots_name = PyUnicode_InternFromString("snapshots");
    if (!snapshots_name || !prepare_type() || !prepare_shortcut_type()) return NULL;
    return PyModule_Create(&definition);
#endif
}
