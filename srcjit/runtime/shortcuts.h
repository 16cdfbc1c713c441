/* Replays a whole program that is one recorded segment, for `replays.cpp`.

   A shortcut asks what the program's guard asks at each call (`questions.h`). Then it compares, in
   one go, what the guard has learned of objects (`unchanged.cpp`) and where the tensors below them
   lie, and launches the recording. */

#include "questions.h"

namespace {

/* `locate` of `unchanged.cpp`: a snapshot, its roots; the addresses of its leaves -> the leaves */
typedef PyObject *const *(*Locate)(PyObject *, PyObject *const *, Py_ssize_t, const void **,
                                   Py_ssize_t);
Locate locate;                        /* or NULL */

enum { PATIENCE = 64 };               /* calls in a row without a replay */

PyObject *snapshots_name;

struct Place {
    Py_ssize_t input, of;
};

struct Shortcut {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Entry *entry;
    PyObject *unchanged;              /* has the snapshots */
    PyObject *tired;
    PyObject *asked;                  /* tuple of the questions */
    std::vector<Question> question;
    Py_ssize_t values, roots, leaves, inputs, results, misses;
    Py_ssize_t *root;                 /* which value each root is */
    std::vector<Place> below, given;  /* which leaf an input is, or which value */
    Py_ssize_t picks, *pick;          /* of the results, for a tuple; -1: the only one itself */
    PyObject **object;                /* the roots of this call */
    const void **leaf;                /* where the leaves lie in this call */
};

/* Notes where everything lies; the leaves, held, or NULL if something may have changed. */
PyObject *const *note_all(Shortcut *self, PyObject *snapshots, PyObject *const *args,
                          PyObject *results) {
    const void **here = self->entry->here;
    PyTypeObject *known = tensor_type;
    for (Py_ssize_t i = 0; i < self->roots; i++) self->object[i] = args[self->root[i]];
    PyObject *const *leaves = NULL;
    for (Py_ssize_t i = 0; !leaves && i < PyTuple_GET_SIZE(snapshots); i++)
        leaves = locate(PyTuple_GET_ITEM(snapshots, i), self->object, self->roots, self->leaf,
                        self->leaves);
    if (!leaves) return NULL;
    for (const Place &place : self->below) here[place.input] = self->leaf[place.of];
    bool all = true;
    try {
        for (const Place &place : self->given)
            all = all && note(&here[place.input], args[place.of], &known);
        for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(results); i++)
            all = note(&here[self->inputs + i], PyTuple_GET_ITEM(results, i), &known);
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
        allocations == entry->allocations && PyTuple_GET_SIZE(results) == self->results &&
        self->inputs + self->results == entry->tensors &&
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
    int fits = 1;
    for (size_t i = 0; fits == 1 && i < self->question.size(); i++)
        fits = ask(&self->question[i], args);
    PyObject *made = fits == 1 ? replayed(self, args) : NULL;
    if (made) {
        self->misses = 0;
        return made;
    }
    /* Whatever went wrong will come again where it belongs. */
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
        PyErr_Clear();
    }
    if (fits == 1 && ++self->misses == PATIENCE) {
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
    Py_VISIT(self->asked);
    return 0;
}

void shortcut_free(PyObject *object) {
    Shortcut *self = (Shortcut *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->unchanged);
    Py_XDECREF(self->tired);
    for (Question &question : self->question) forget(&question);
    Py_XDECREF(self->asked);
    self->question.~vector();
    self->below.~vector();
    self->given.~vector();
    PyMem_Free(self->root);
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

/* Which inputs are leaves, and which are values of the call. */
bool divide(Shortcut *self, PyObject *inputs) {
    Py_ssize_t *input = numbers(inputs, -self->leaves, self->values);
    for (Py_ssize_t i = 0; input && i < self->inputs; i++) {
        if (input[i] < 0) self->below.push_back({i, -1 - input[i]});
        else self->given.push_back({i, input[i]});
    }
    PyMem_Free(input);
    return input != NULL;
}

/* shortcut(entry, unchanged, tired, questions, number of values, roots, number of leaves, inputs,
   picks) */
PyObject *shortcut(PyObject *, PyObject *args) {
    PyObject *entry, *unchanged, *tired, *asked, *roots, *inputs, *picks;
    Py_ssize_t values, leaves;
    if (!PyArg_ParseTuple(args, "O!OOO!nO!nO!O", &entry_type, &entry, &unchanged, &tired,
                          &PyTuple_Type, &asked, &values, &PyTuple_Type, &roots, &leaves,
                          &PyTuple_Type, &inputs, &picks))
        return NULL;
    if (!locate) return PyErr_Format(PyExc_RuntimeError, "nothing is known to be unchanged");
    bool single = picks == Py_None;
    if (!single && !PyTuple_Check(picks))
        return PyErr_Format(PyExc_TypeError, "what is returned is no tuple");
    Shortcut *self = PyObject_GC_New(Shortcut, &shortcut_type);
    if (!self) return NULL;
    memset(&self->vectorcall, 0, sizeof(Shortcut) - offsetof(Shortcut, vectorcall));
    new (&self->question) std::vector<Question>(PyTuple_GET_SIZE(asked));
    new (&self->below) std::vector<Place>();
    new (&self->given) std::vector<Place>();
    PyObject_GC_Track((PyObject *)self);
    self->vectorcall = shortcut_call;
    self->entry = (Entry *)Py_NewRef(entry);
    self->unchanged = Py_NewRef(unchanged);
    self->tired = Py_NewRef(tired);
    self->asked = Py_NewRef(asked);
    self->values = values;
    self->roots = PyTuple_GET_SIZE(roots);
    self->leaves = leaves;
    self->inputs = PyTuple_GET_SIZE(inputs);
    self->picks = single ? -1 : PyTuple_GET_SIZE(picks);
    self->results = PyTuple_GET_SIZE(self->entry->allocations);
    bool fits = true;
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(asked); i++)
        fits = read(&self->question[i], PyTuple_GET_ITEM(asked, i), values);
    fits = fits && (self->root = numbers(roots, 0, values)) && divide(self, inputs);
    if (fits && !single) fits = (self->pick = numbers(picks, 0, self->results)) != NULL;
    if (fits && single && !self->results) {
        PyErr_SetString(PyExc_ValueError, "there is no result");
        fits = false;
    }
    self->object = (PyObject **)PyMem_Calloc(self->roots + 1, sizeof(PyObject *));
    self->leaf = (const void **)PyMem_Calloc(leaves + 1, sizeof(void *));
    if (!fits || !self->object || !self->leaf) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

}  // namespace
