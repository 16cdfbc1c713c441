/* What an extension sees of a tensor without Python, and what a guard remembers of it.

   Of PyTorch's headers only c10's are read, which take a second; those with `THPVariable` take
   nine. Where that has its implementation is found by looking (`connect` of `unchanged.cpp`). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <c10/core/TensorImpl.h>
#include <climits>
#include <cstddef>
#include <cstring>
#include <vector>

namespace {

using c10::DispatchKey;
using c10::TensorImpl;

PyTypeObject *tensor_type;            /* torch._C.TensorBase */
Py_ssize_t place;                     /* of the implementation in a tensor; 0: not known */

void *word_at(PyObject *object, Py_ssize_t offset) {
    return *reinterpret_cast<void **>(reinterpret_cast<char *>(object) + offset);
}

TensorImpl *implementation(PyObject *tensor) {
    return static_cast<TensorImpl *>(word_at(tensor, place));
}

size_t gradient_place;                /* of a byte in what autograd knows; 0: not known */

/* NOTE: a tensor that has been computed wants one whatever that byte says. */
inline bool wants_gradient(const TensorImpl *tensor) {
    const c10::AutogradMetaInterface *meta = tensor->autograd_meta();
    if (!meta) return false;
    if (gradient_place && reinterpret_cast<const char *>(meta)[gradient_place] == 1) return true;
    return meta->requires_grad();
}

const void *address_of(const TensorImpl *tensor) {
    const c10::Storage &storage = tensor->unsafe_storage();
    /* Only what begins inside of its memory has to ask libc10 for the size of an element. */
    if (storage && tensor->storage_offset() == 0 && tensor->numel())
        return storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    return tensor->data();
}

/* The members that say nearly all about a tensor. */
struct Inside : TensorImpl {
    static const Inside &of(const TensorImpl *tensor) {
        return *static_cast<const Inside *>(tensor);
    }
    const c10::impl::SizesAndStrides &shape() const { return sizes_and_strides_; }
    int64_t first() const { return storage_offset_; }
    /* dtype, device and flags, among them whether others are asked for device or sizes */
    uint64_t traits() const {
        uint64_t found;
        memcpy(&found, &data_type_, sizeof found);
        return found;
    }
    /* Whether the members mean what they say, and `traits` are all that stands there. */
    bool is_plain() const {
        const char *begin = reinterpret_cast<const char *>(&data_type_);
        return reinterpret_cast<const char *>(&key_set_) - begin == sizeof(uint64_t) &&
               !sizes_strides_policy_ && !device_policy_ && !layout_policy_;
    }
};

struct Facts {
    PyTypeObject *type = NULL;        /* held; NULL: nothing is known */
    TensorImpl *tensor;
    uint64_t keys, traits;
    int64_t first, bytes;             /* of its elements in the memory; -1: it has to be asked */
    caffe2::TypeMeta dtype;
    c10::Device device = c10::kCPU;
    bool wants_gradient;
    unsigned char dims;
};

/* Whether a tensor answers as one did whose facts these are; `numbers` are sizes and strides. */
bool answers_alike(const Facts &facts, const int64_t *numbers, const TensorImpl *tensor) {
    if (tensor->key_set().raw_repr() != facts.keys || tensor->dtype() != facts.dtype ||
        tensor->device() != facts.device || wants_gradient(tensor) != facts.wants_gradient)
        return false;
    c10::IntArrayRef sizes = tensor->sizes(), strides = tensor->strides();
    if (sizes.size() != facts.dims || strides.size() != facts.dims) return false;
    for (size_t i = 0; i < facts.dims; i++)
        if (sizes[i] != numbers[i] || strides[i] != numbers[facts.dims + i]) return false;
    return true;
}

/* Whether a tensor has the facts; if it has, also where it lies, if that is wanted.

   NOTE: that the members are as they were is enough, and fast; other flags, say, may stand
   beside the same facts, so a difference is not. */
inline bool is_alike(const Facts &facts, const int64_t *numbers, const TensorImpl *tensor,
                     const void **address) {
    const Inside &inside = Inside::of(tensor);
    c10::StorageImpl *storage = tensor->unsafe_storage().unsafeGetStorageImpl();
    uint64_t differ = (inside.traits() ^ facts.traits) |
                      (tensor->key_set().raw_repr() ^ facts.keys) |
                      (inside.first() ^ facts.first) | (inside.shape().size() ^ facts.dims);
    if (!differ) {
        const int64_t *sizes = inside.shape().sizes_data(), *strides = inside.shape().strides_data();
        for (size_t i = 0; i < facts.dims; i++)
            differ |= (sizes[i] ^ numbers[i]) | (strides[i] ^ numbers[facts.dims + i]);
    }
    if (differ || facts.bytes < 0 || !storage) {
        if (!answers_alike(facts, numbers, tensor)) return false;
        if (address) *address = address_of(tensor);
        return true;
    }
    if (wants_gradient(tensor) != facts.wants_gradient) return false;
    if (address)
        *address = static_cast<const char *>(storage->_mutable_data_ptr_no_checks().get()) +
                   facts.bytes;
    return true;
}

/* Appends sizes and strides to `numbers`; false if that is no tensor that says all about
   itself. */
bool take(Facts *facts, std::vector<int64_t> *numbers, PyObject *leaf) {
    if (!place || !PyObject_TypeCheck(leaf, tensor_type)) return false;
    PyObject *address = PyObject_GetAttrString(leaf, "_cdata");
    void *wanted = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(address);
    PyErr_Clear();
    if (!wanted || word_at(leaf, place) != wanted) return false;
    const TensorImpl *tensor = implementation(leaf);
    for (DispatchKey key : {DispatchKey::Python, DispatchKey::NestedTensor,
                            DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper,
                            DispatchKey::Functionalize, DispatchKey::Batched})
        if (tensor->key_set().has(key)) return false;
    if (tensor->has_symbolic_sizes_strides() || tensor->layout() != c10::kStrided) return false;
    c10::IntArrayRef sizes = tensor->sizes(), strides = tensor->strides();
    if (strides.size() != sizes.size() || sizes.size() > UCHAR_MAX) return false;
    facts->dims = (unsigned char)sizes.size();
    numbers->insert(numbers->end(), sizes.begin(), sizes.end());
    numbers->insert(numbers->end(), strides.begin(), strides.end());
    facts->tensor = implementation(leaf);
    const Inside &inside = Inside::of(tensor);
    bool plain = inside.is_plain() && tensor->numel() && tensor->unsafe_storage();
    facts->traits = inside.traits();
    facts->first = tensor->storage_offset();
    facts->bytes = plain ? facts->first * (int64_t)tensor->itemsize() : -1;
    facts->keys = tensor->key_set().raw_repr();
    facts->dtype = tensor->dtype();
    facts->device = tensor->device();
    facts->wants_gradient = wants_gradient(tensor);
    facts->type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(leaf));
    return true;
}

}  // namespace
