/* Calls of jitted modules, for `unchanged.cpp`: what `_call` of `srcjit/module.py` does for a module
   that calls its stub, as far as a snapshot knows. For all others it is `_call` that is called. */

namespace {

#if VERSIONS

PyObject *call_otherwise, *tracing_state, *global_hooks, *usual_name, *now_name;

/* Whether a call of the module is one of its stub. */
bool is_usual(PyObject *usual) {
    if (!PyTuple_CheckExact(usual) || PyTuple_GET_SIZE(usual) != 4) return false;
    PyObject *original = PyTuple_GET_ITEM(usual, 2), *plain = PyTuple_GET_ITEM(usual, 3);
    if (plain == Py_None) return false;
    PyObject *state = PyObject_CallNoArgs(tracing_state);
    Py_XDECREF(state);
    PyObject *now = state == Py_None ? PyObject_GetAttr(plain, now_name) : NULL;
    bool same = false;
    if (now && Py_TYPE(now) == &snapshot_type) {
        const Snapshot *snapshot = (const Snapshot *)now;
        PyObject *const roots[] = {original, global_hooks};
        same = snapshot->roots == 2 && is_about(snapshot, roots) && is_same(snapshot, NULL);
    }
    Py_XDECREF(now);
    return same;
}

PyObject *module_call(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *usual = PyObject_GetAttr(self, usual_name);
    bool fits = usual && is_usual(usual);
    PyErr_Clear();
    Py_ssize_t all = count + (names ? PyTuple_GET_SIZE(names) : 0);
    /* In front of them there is place for one, which the function that is called may use. */
    PyObject *few[8];
    std::vector<PyObject *> many(all + 2 > 8 ? all + 2 : 0);
    PyObject **given = many.empty() ? few : many.data();
    given[1] = fits ? PyTuple_GET_ITEM(usual, 2) : self;
    std::copy(args, args + all, given + 2);
    PyObject *function = fits ? PyTuple_GET_ITEM(usual, 1) : call_otherwise;
    size_t flags = (count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject *made = PyObject_Vectorcall(function, given + 1, flags, names);
    Py_XDECREF(usual);
    return made;
}

PyMethodDef module_call_method = {
    "__call__", (PyCFunction)(void (*)(void))module_call, METH_FASTCALL | METH_KEYWORDS,
    "__call__($self, /, *args, **kwargs)\n--\n\nCalls the module."};

/* module_call(otherwise, tracing_state, hooks) -> what a class may have as `__call__`, or None */
PyObject *make_module_call(PyObject *, PyObject *args) {
    PyObject *otherwise, *state, *hooks;
    if (!PyArg_ParseTuple(args, "OOO", &otherwise, &state, &hooks)) return NULL;
    Py_XSETREF(call_otherwise, Py_NewRef(otherwise));
    Py_XSETREF(tracing_state, Py_NewRef(state));
    Py_XSETREF(global_hooks, Py_NewRef(hooks));
    if (!usual_name) usual_name = PyUnicode_InternFromString("_srcjit_usual");
    if (!now_name) now_name = PyUnicode_InternFromString("now");
    if (!usual_name || !now_name) return NULL;
    return PyDescr_NewMethod(&PyBaseObject_Type, &module_call_method);
}

#endif

}  // namespace
