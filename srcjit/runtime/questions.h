/* What a guard asks at each call, asked without Python (`srcjit/questions.py`).

   A question is a tuple:

       ("call", owner, name or None, wanted, values)   whether bool(owner.name(*values)) is wanted
       ("tensors", owner, name, True, values)          the same of a check of nothing but facts
       ("is", dictionary, key, object, wanted)         whether (dictionary[key] is object) is wanted
       ("absent", dictionary, keys)                    whether it has none of the keys
       ("below", owner, name, number)                  whether owner.name < number

   `values` says which values of the call are given.

   What a check of tensors says depends on their facts, on whether two of them are one object, and
   on this thread's dispatch keys. Where all that is as it was when it said yes, it says so again. */

#include "tensors.h"
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace {

enum { CALL, TENSORS, IS, ABSENT, BELOW, QUESTIONS };

const char *const question_names[] = {"call", "tensors", "is", "absent", "below"};

enum { LESSONS = 16 };

struct Question {
    int kind;
    PyObject *of, *name, *object;     /* borrowed from the tuple */
    bool wanted;
    std::vector<Py_ssize_t> value;    /* which are given */
    int lessons = LESSONS;            /* that may still be learned */
    bool known = false;               /* when a check of tensors says yes */
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    std::vector<Facts> facts;
    std::vector<int64_t> numbers;
};

void forget(Question *question) {
    for (Facts &facts : question->facts) Py_CLEAR(facts.type);
    question->facts.clear();
    question->numbers.clear();
    question->known = false;
}

bool same_keys(const c10::impl::LocalDispatchKeySet &keys) {
    c10::impl::LocalDispatchKeySet now = c10::impl::tls_local_dispatch_key_set();
    return now.included_ == keys.included_ && now.excluded_ == keys.excluded_;
}

bool all_alike(const Question &question, PyObject *const *given) {
    if (!question.known || !same_keys(question.keys)) return false;
    const int64_t *numbers = question.numbers.data();
    try {
        for (size_t i = 0; i < question.facts.size(); i++) {
            const Facts &facts = question.facts[i];
            for (size_t j = 0; j < i; j++)
                if (given[i] == given[j]) return false;
            if (Py_TYPE(given[i]) != facts.type) return false;
            if (!is_alike(facts, numbers, implementation(given[i]), NULL)) return false;
            numbers += 2 * facts.dims;
        }
    } catch (const std::exception &) {
        return false;                 /* a tensor that does not tell its sizes */
    }
    return true;
}

/* The check has just said yes of these tensors. */
void learn(Question *question, PyObject *const *given) {
    forget(question);
    if (question->lessons == 0) return;
    question->lessons--;
    question->keys = c10::impl::tls_local_dispatch_key_set();
    bool fits = true;
    try {
        question->facts.resize(question->value.size());
        for (size_t i = 0; fits && i < question->value.size(); i++)
            fits = take(&question->facts[i], &question->numbers, given[i]);
    } catch (const std::exception &) {
        fits = false;
    }
    if (fits) question->known = true;
    else forget(question), question->lessons = 0;
}

int called(Question *question, PyObject *const *values) {
    size_t count = question->value.size();
    PyObject **given = static_cast<PyObject **>(alloca((count + 1) * sizeof(PyObject *)));
    for (size_t i = 0; i < count; i++) given[i] = values[question->value[i]];
    if (question->kind == TENSORS && all_alike(*question, given)) return 1;
    PyObject *function = question->name == Py_None
                             ? Py_NewRef(question->of)
                             : PyObject_GetAttr(question->of, question->name);
    PyObject *found = function ? PyObject_Vectorcall(function, given, count, NULL) : NULL;
    Py_XDECREF(function);
    int truth = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    if (truth < 0) return -1;
    if (question->kind == TENSORS && truth) learn(question, given);
    return truth == question->wanted;
}

/* 1: it is as wanted, 0: it is not, -1: there is an exception. */
int ask(Question *question, PyObject *const *values) {
    switch (question->kind) {
    case IS: {
        PyObject *found = PyDict_GetItemWithError(question->of, question->name);
        if (!found) return PyErr_Occurred() ? -1 : 0;
        return (found == question->object) == question->wanted;
    }
    case ABSENT:
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(question->name); i++) {
            int found = PyDict_Contains(question->of, PyTuple_GET_ITEM(question->name, i));
            if (found) return found < 0 ? -1 : 0;
        }
        return 1;
    case BELOW: {
        PyObject *found = PyObject_GetAttr(question->of, question->name);
        int below = found ? PyObject_RichCompareBool(found, question->object, Py_LT) : -1;
        Py_XDECREF(found);
        return below;
    }
    default:
        return called(question, values);
    }
}

/* Reads one from its tuple; false with an exception if that is none. */
bool read(Question *question, PyObject *row, Py_ssize_t values) {
    const char *kind;
    PyObject *given = NULL;
    int wanted = 1;
    bool fits = PyTuple_Check(row) && PyTuple_GET_SIZE(row) >= 3 &&
                (kind = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 0)));
    question->kind = 0;
    while (fits && question->kind < QUESTIONS && strcmp(question_names[question->kind], kind))
        question->kind++;
    question->object = NULL;
    if (fits) switch (question->kind) {
        case CALL:
        case TENSORS:
            fits = PyArg_ParseTuple(row, "sOOpO!", &kind, &question->of, &question->name, &wanted,
                                    &PyTuple_Type, &given);
            break;
        case IS:
            fits = PyArg_ParseTuple(row, "sO!UOp", &kind, &PyDict_Type, &question->of,
                                    &question->name, &question->object, &wanted);
            break;
        case ABSENT:
            fits = PyArg_ParseTuple(row, "sO!O!", &kind, &PyDict_Type, &question->of,
                                    &PyTuple_Type, &question->name);
            break;
        case BELOW:
            fits = PyArg_ParseTuple(row, "sOUO", &kind, &question->of, &question->name,
                                    &question->object);
            break;
        default:
            fits = false;
        }
    question->wanted = wanted;
    for (Py_ssize_t i = 0; fits && given && i < PyTuple_GET_SIZE(given); i++) {
        Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, i));
        fits = place >= 0 && place < values;
        question->value.push_back(place);
    }
    if (!fits && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%R is no question", row);
    return fits;
}

}  // namespace
