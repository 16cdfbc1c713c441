/* Replays the recordings of a segment without Python: `graphs.py` says when that is right.

   An entry stands in front of the Python functions that do everything. Where the call comes
   from the thread and the device of its recordings, it allocates the results; where they and all
   inputs lie as they did for a recording of the stream, it launches that. Python gets what it has
   no recording for, with the results, and all other calls as they are.

   A shortcut stands in front of a whole program that is one such segment, behind the conditions
   that are asked at each call. It compares, in one go, what the guard has learned of objects
   (`unchanged.cpp`) and where the tensors below them lie.

   NOTE: from the first address that is read to the launch, no Python code runs. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <c10/core/TensorImpl.h>
#include <cstddef>

namespace {

PyTypeObject *tensor_type;            /* torch._C.TensorBase */
Py_ssize_t place;                     /* of the implementation in a tensor */

/* `locate` of `unchanged.cpp`: a snapshot, its roots; the addresses of its leaves -> the leaves */
typedef PyObject *const *(*Locate)(PyObject *, PyObject *const *, Py_ssize_t, const void **,
                                   Py_ssize_t);
Locate locate;                        /* or NULL */

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

/* As `unchanged.cpp` has it. */
const void *address_of(PyObject *object) {
    char *at = reinterpret_cast<char *>(object) + place;
    const c10::TensorImpl *tensor = *reinterpret_cast<c10::TensorImpl **>(at);
    const c10::Storage &storage = tensor->unsafe_storage();
    if (storage && tensor->storage_offset() == 0 && tensor->numel())
        return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    return tensor->data();
}

/* Whether something could be replayed now, and on which stream. */
bool here_and_now(Entry *self, uintptr_t *stream) {
    if (PyThread_get_thread_ident() != self->thread) return false;
    PyObject *device = PyObject_CallNoArgs(self->current_device);
    bool same = device == self->device ||
                (device && PyObject_RichCompareBool(device, self->device, Py_EQ) == 1);
    Py_XDECREF(device);
    if (!same) return false;
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
    *here = address_of(tensor);
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

/* entry(otherwise, device, current_device, current_stream, is_capturing) -> Entry */
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

/* ── shortcuts ─────────────────────────────────────────────────────────────────────────── */

enum { PATIENCE = 64 };               /* calls in a row without a replay */

PyObject *snapshots_name;

struct Shortcut {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Entry *entry;
    PyObject *unchanged;              /* has the snapshots */
    PyObject *tired;
    Py_ssize_t values, roots, leaves, inputs, misses;
    Py_ssize_t *root;                 /* which value each root is */
    Py_ssize_t *input;                /* which value each input is, or -1 - which leaf */
    Py_ssize_t picks, *pick;          /* of the results, for a tuple; -1: the only one itself */
    PyObject **object;                /* the roots of this call */
    const void **leaf;                /* where the leaves lie in this call */
};

/* Notes where everything lies; the leaves, held, or NULL if something may have changed. */
PyObject *const *note_all(Shortcut *self, PyObject *snapshots, PyObject *const *args, PyObject *results) {
    const void **here = self->entry->here;
    PyTypeObject *known = tensor_type;
    for (Py_ssize_t i = 0; i < self->roots; i++) self->object[i] = args[self->root[i]];
    PyObject *const *leaves = NULL;
    for (Py_ssize_t i = 0; !leaves && i < PyTuple_GET_SIZE(snapshots); i++)
        leaves = locate(PyTuple_GET_ITEM(snapshots, i), self->object, self->roots, self->leaf,
                        self->leaves);
    if (!leaves) return NULL;
    bool all = true;
    try {
        for (Py_ssize_t i = 0; all && i < self->inputs; i++, here++) {
            Py_ssize_t from = self->input[i];
            if (from < 0) *here = self->leaf[-1 - from];
            else all = note(here, args[from], &known);
        }
        for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(results); i++, here++)
            all = note(here, PyTuple_GET_ITEM(results, i), &known);
    } catch (const std::exception &) {
        all = false;
    }
    if (all) return leaves;
    for (Py_ssize_t i = 0; i < self->leaves; i++) Py_DECREF(leaves[i]);
    return NULL;
}

PyObject *returned(Shortcut *self, PyObject *results) {
    PyObject *made = self->picks < 0 ? Py_NewRef(PyTuple_GET_ITEM(results, 0))
                                     : PyTuple_New(self->picks);
    for (Py_ssize_t i = 0; made && i < self->picks; i++)
        PyTuple_SET_ITEM(made, i, Py_NewRef(PyTuple_GET_ITEM(results, self->pick[i])));
    Py_DECREF(results);
    return made;
}

/* What the program returns, or NULL if nothing has been done. */
PyObject *replayed(Shortcut *self, PyObject *const *args) {
    Entry *entry = self->entry;
    uintptr_t stream = 0;
    if (!entry->missed || !entry->count || !here_and_now(entry, &stream)) return NULL;
    PyObject *allocations = Py_NewRef(entry->allocations);
    PyObject *results = allocated(allocations);
    PyObject *snapshots = results ? PyObject_GetAttr(self->unchanged, snapshots_name) : NULL;
    Recording *found = NULL;
    PyObject *const *leaves = NULL;
    /* Other threads may have changed the entry while something was called. */
    if (snapshots && PyTuple_Check(snapshots) && entry->count &&
        allocations == entry->allocations &&
        self->inputs + PyTuple_GET_SIZE(results) == entry->tensors &&
        (leaves = note_all(self, snapshots, args, results)))
        found = recorded(entry, stream);
    if (found) {
        /* Other threads may drop tensors while it is launched, but those are held. */
        results = launched(entry, found, results);
    } else {
        Py_CLEAR(results);
    }
    for (Py_ssize_t i = 0; leaves && i < self->leaves; i++) Py_DECREF(leaves[i]);
    Py_XDECREF(snapshots);
    Py_DECREF(allocations);
    return results ? returned(self, results) : NULL;
}

PyObject *shortcut_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names) {
    Shortcut *self = (Shortcut *)object;
    if (names || PyVectorcall_NARGS(flags) != self->values)
        return PyErr_Format(PyExc_TypeError, "a shortcut takes %zd values", self->values);
    PyObject *made = replayed(self, args);
    if (made) {
        self->misses = 0;
        return made;
    }
    /* Whatever it was, it will come again where it belongs. */
    PyErr_Clear();
    if (++self->misses == PATIENCE) {
        PyObject *nothing = PyObject_CallNoArgs(self->tired);
        if (!nothing) return NULL;
        Py_DECREF(nothing);
    }
    Py_RETURN_NONE;
}

int shortcut_traverse(PyObject *object, visitproc visit, void *arg) {
    Shortcut *self = (Shortcut *)object;
    Py_VISIT(self->entry);
    Py_VISIT(self->unchanged);
    Py_VISIT(self->tired);
    return 0;
}

void shortcut_free(PyObject *object) {
    Shortcut *self = (Shortcut *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->unchanged);
    Py_XDECREF(self->tired);
    PyMem_Free(self->root);
    PyMem_Free(self->input);
    PyMem_Free(self->pick);
    PyMem_Free(self->object);
    PyMem_Free(self->leaf);
    PyObject_GC_Del(object);
}

PyTypeObject shortcut_type = {PyVarObject_HEAD_INIT(NULL, 0)};

bool prepare_shortcut_type() {
    shortcut_type.tp_name = "srcjit.runtime.Shortcut";
    shortcut_type.tp_doc = "Replays a whole program; None where there is nothing to replay.";
    shortcut_type.tp_basicsize = sizeof(Shortcut);
    shortcut_type.tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;
    shortcut_type.tp_vectorcall_offset = offsetof(Shortcut, vectorcall);
    shortcut_type.tp_call = PyVectorcall_Call;
    shortcut_type.tp_dealloc = shortcut_free;
    shortcut_type.tp_traverse = shortcut_traverse;
    return PyType_Ready(&shortcut_type) == 0;
}

/* The numbers of a tuple, all in [least, most); NULL with an exception otherwise. */
Py_ssize_t *numbers(PyObject *tuple, Py_ssize_t least, Py_ssize_t most) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    Py_ssize_t *made = (Py_ssize_t *)PyMem_Calloc(count + 1, sizeof(Py_ssize_t));
    if (!made) PyErr_NoMemory();
    for (Py_ssize_t i = 0; made && i < count; i++) {
        made[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (!PyErr_Occurred() && made[i] >= least && made[i] < most) continue;
        if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "there is no %zd", made[i]);
        PyMem_Free(made);
        return NULL;
    }
    return made;
}

/* shortcut(entry, unchanged, tired, number of values, roots, number of leaves, inputs, picks) */
PyObject *shortcut(PyObject *, PyObject *args) {
    PyObject *entry, *unchanged, *tired, *roots, *inputs, *picks;
    Py_ssize_t values, leaves;
    if (!PyArg_ParseTuple(args, "O!OOnO!nO!O", &entry_type, &entry, &unchanged, &tired, &values,
                          &PyTuple_Type, &roots, &leaves, &PyTuple_Type, &inputs, &picks))
        return NULL;
    if (!locate) return PyErr_Format(PyExc_RuntimeError, "nothing is known to be unchanged");
    bool single = picks == Py_None;
    if (!single && !PyTuple_Check(picks))
        return PyErr_Format(PyExc_TypeError, "what is returned is no tuple");
    Shortcut *self = PyObject_GC_New(Shortcut, &shortcut_type);
    if (!self) return NULL;
    memset(&self->vectorcall, 0, sizeof(Shortcut) - offsetof(Shortcut, vectorcall));
    PyObject_GC_Track((PyObject *)self);
    self->vectorcall = shortcut_call;
    self->entry = (Entry *)Py_NewRef(entry);
    self->unchanged = Py_NewRef(unchanged);
    self->tired = Py_NewRef(tired);
    self->values = values;
    self->roots = PyTuple_GET_SIZE(roots);
    self->leaves = leaves;
    self->inputs = PyTuple_GET_SIZE(inputs);
    self->picks = single ? -1 : PyTuple_GET_SIZE(picks);
    Py_ssize_t results = PyTuple_GET_SIZE(self->entry->allocations);
    self->root = numbers(roots, 0, values);
    if (self->root) self->input = numbers(inputs, -leaves, values);
    if (self->input && !single) self->pick = numbers(picks, 0, results);
    self->object = (PyObject **)PyMem_Calloc(self->roots + 1, sizeof(PyObject *));
    self->leaf = (const void **)PyMem_Calloc(leaves + 1, sizeof(void *));
    if (!self->input || (!single && !self->pick) || !self->object || !self->leaf) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

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
     "shortcut(entry, unchanged, tired, values, roots, leaves, inputs, picks) -> Shortcut"},
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
