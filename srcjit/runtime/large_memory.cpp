/* The memory of large results on the CPU.

   A result gets a mapping of its own, with huge pages where they can be had fast. When it dies,
   its mapping goes to the pool with `MADV_FREE`: the system takes the pages whenever it is short
   of memory, and until then the next result of that size finds them, with nothing to map. For
   small pages that takes longer than to write to them all; of such, as much as the C library
   keeps of what it frees stays as it is until another result is made or dies, `HOT_NS` later.

   The pool holds at most `most` bytes, and nothing that has not been used for `AGE` results or
   `AGE_NS`. Memory that was there when the process forked is never pooled again, on neither
   side: it may be shared, and writing to it would copy it in small pages.

   NOTE: a tensor may die on any thread, without the interpreter's lock and after its end, so
   what `release` calls knows no Python, and nothing here has a destructor. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <algorithm>
#include <atomic>
#include <climits>
#include <vector>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr int64_t HUGE_PAGE = 2 << 20, MOST = 256 << 20;
constexpr int64_t MAPPED = 8000;      /* ns in which a page is found, not made */
constexpr int64_t AGE_NS = 2000000000;
constexpr uint64_t AGE = 64;
constexpr int64_t HOT = 64 << 20, HOT_NS = 100000000;
constexpr int RETRY = 64;             /* uses of small pages until huge ones are tried again */

/* Stands in a page of its own in front of the memory. So a tensor's `DataPtr` has no context but
   its address, as that of the C library's memory: PyTorch makes lazy clones only of such. */
struct Block {
    Block *next;
    int64_t bytes;
    uint64_t forks, returned;         /* the process's forks when mapped; results so far */
    int64_t when;
    int uses;
    bool huge;                        /* all of it */
    bool hot;                         /* in the pool, but not the system's to take */
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* over the following */
Block *pool;                          /* the last returned first */
int64_t held, hot;
uint64_t forks, results;
std::atomic<int64_t> most;
int64_t front;                        /* bytes of a page */

char *data_of(Block *block) { return reinterpret_cast<char *>(block) + front; }
Block *block_of(void *data) {
    return reinterpret_cast<Block *>(static_cast<char *>(data) - front);
}

int64_t nanoseconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void unmap(Block *block) { munmap(block, front + block->bytes); }

void unmap_all(Block *block) {
    while (block) {
        Block *next = block->next;
        unmap(block);
        block = next;
    }
}

/* What is there already keeps its contents. */
void touch(char *page) { __atomic_fetch_or(page, 0, __ATOMIC_RELAXED); }

Block *map(int64_t bytes) {
    int64_t whole = bytes + HUGE_PAGE + front;
    void *found = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return NULL;
    char *begin = static_cast<char *>(found), *end = begin + whole;
    uintptr_t mask = HUGE_PAGE - 1;
    char *data = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(begin) + front + mask) & ~mask);
    Block *block = block_of(data);
    if (begin < data - front) munmap(begin, data - front - begin);
    if (data + bytes < end) munmap(data + bytes, end - data - bytes);
    *block = Block{NULL, bytes, 0, 0, 0, 0, false, false};
    block->huge = !madvise(data, bytes, MADV_HUGEPAGE);
    touch(data);
    unsigned char is_there;
    if (mincore(data + HUGE_PAGE - front, front, &is_there) || !(is_there & 1)) {
        block->huge = false;          /* the system has none, now or ever */
        block->uses = INT_MIN;
    }
    return block;
}

/* Maps huge pages until they have taken `limit` ns for each that the block holds, of the
   processor time of the threads, and leaves the rest to small ones. The threads share the pages
   as they will share the loops over them. */
void fill(Block *block, int64_t limit) {
    char *data = data_of(block);
    int64_t count = block->bytes / HUGE_PAGE, left = limit * count, start = 0, mapped = 0;
    /* Threads are not woken for pages that are still there. */
    int64_t before = nanoseconds(CLOCK_MONOTONIC), after;
    for (; start < count && left >= 0; start++, before = after) {
        touch(data + HUGE_PAGE * start);
        after = nanoseconds(CLOCK_MONOTONIC);
        if (after - before > MAPPED) break;
    }
    #pragma omp parallel for schedule(static) reduction(+ : mapped) if(start < count)
    for (int64_t page = start; page < count; page++) {
        if (__atomic_load_n(&left, __ATOMIC_RELAXED) < 0) continue;
        int64_t own = -nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        touch(data + HUGE_PAGE * page);
        own += nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        __atomic_sub_fetch(&left, own, __ATOMIC_RELAXED);
        mapped++;
    }
    if (start + mapped < count) {
        block->huge = false;
        madvise(data, block->bytes, MADV_NOHUGEPAGE);
    }
}

void leave(Block **link) {
    Block *block = *link;
    *link = block->next;
    held -= block->bytes;
    if (block->hot) hot -= block->bytes;
    block->hot = false;
}

/* Takes what nobody has used for long out of the pool, and the oldest of what is too much. */
Block *old_ones(int64_t now) {
    Block **link = &pool, *old = NULL;
    int64_t sum = 0;
    while (Block *block = *link) {
        if (block->hot && now - block->when > HOT_NS) {
            hot -= block->bytes;
            block->hot = false;
            madvise(data_of(block), block->bytes, MADV_FREE);
        }
        sum += block->bytes;
        if (sum <= most && results - block->returned <= AGE && now - block->when <= AGE_NS) {
            link = &block->next;
            continue;
        }
        sum -= block->bytes;
        leave(link);
        block->next = old;
        old = block;
    }
    return old;
}

Block *everything() {
    Block *all = pool;
    pool = NULL;
    held = hot = 0;
    return all;
}

/* The smallest that holds as much and is not far larger; of equal ones the last returned. */
Block *fitting(int64_t bytes) {
    Block **found = NULL;
    for (Block **link = &pool; *link; link = &(*link)->next)
        if ((*link)->bytes >= bytes && (*link)->bytes <= bytes + bytes / 8 &&
            (!found || (*link)->bytes < (*found)->bytes))
            found = link;
    if (!found) return NULL;
    Block *block = *found;
    leave(found);
    return block;
}

Block *take(int64_t bytes, int64_t limit) {
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    int64_t now = nanoseconds(CLOCK_MONOTONIC);
    pthread_mutex_lock(&lock);
    results++;
    uint64_t own = forks;
    Block *block = fitting(bytes), *old = old_ones(now);
    pthread_mutex_unlock(&lock);
    unmap_all(old);
    if (!block) {
        block = map(bytes);
        if (!block) {                 /* of addresses, at least, what is kept is withheld */
            pthread_mutex_lock(&lock);
            old = everything();
            pthread_mutex_unlock(&lock);
            unmap_all(old);
            block = map(bytes);
        }
        if (!block) return NULL;
        block->forks = own;
    }
    if (block->huge) fill(block, limit);
    return block;
}

void release(void *data) {
    if (!data) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    Block *block = block_of(data);
    int64_t now = nanoseconds(CLOCK_MONOTONIC), bytes = block->bytes;
    pthread_mutex_lock(&lock);
    bool again = bytes <= most && block->forks == forks && (block->huge || ++block->uses < RETRY);
    if (again && !block->huge && hot + bytes <= HOT) {
        block->hot = true;
        hot += bytes;
    }
    if (again && !block->hot) again = !madvise(data, bytes, MADV_FREE);
    if (again) {
        block->when = now;
        block->returned = results;
        block->next = pool;
        pool = block;
        held += bytes;
    }
    Block *old = old_ones(now);
    pthread_mutex_unlock(&lock);
    if (!again) unmap(block);
    unmap_all(old);
}

void before_fork() {
    pthread_mutex_lock(&lock);
    unmap_all(everything());
    forks++;
}

void after_fork() { pthread_mutex_unlock(&lock); }

/* ── for Python ────────────────────────────────────────────────────────────────────────── */

bool numbers(PyObject *tuple, std::vector<int64_t> *out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        out->push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
        if (out->back() == -1 && PyErr_Occurred()) return false;
    }
    return true;
}

/* place(implementation, size, stride, limit in ns for a huge page) -> whether an empty tensor, by
   its `_cdata`, has got memory of that size; False: the C library's will do */
PyObject *place(PyObject *, PyObject *args) {
    long long address, limit;
    PyObject *sizes, *strides;
    if (!PyArg_ParseTuple(args, "LO!O!L", &address, &PyTuple_Type, &sizes, &PyTuple_Type,
                          &strides, &limit))
        return NULL;
    try {
        std::vector<int64_t> size, stride;
        if (!numbers(sizes, &size) || !numbers(strides, &stride)) return NULL;
        auto *tensor = reinterpret_cast<c10::TensorImpl *>((uintptr_t)address);
        c10::Allocator *allocator = c10::GetCPUAllocator();
        /* Where somebody has set another one, theirs is wanted. */
        if (allocator != c10::GetDefaultCPUAllocator() || size.size() != stride.size())
            Py_RETURN_FALSE;
        int64_t last = 0, bytes;
        for (size_t i = 0; i < size.size(); i++) {
            int64_t step;
            if (size[i] < 1 || stride[i] < 0 ||
                __builtin_mul_overflow(size[i] - 1, stride[i], &step) ||
                __builtin_add_overflow(last, step, &last))
                Py_RETURN_FALSE;
        }
        if (__builtin_mul_overflow(last + 1, (int64_t)tensor->itemsize(), &bytes) ||
            bytes >= INT64_MAX / 2)
            Py_RETURN_FALSE;
        Block *block;
        Py_BEGIN_ALLOW_THREADS
        block = take(bytes, limit);
        Py_END_ALLOW_THREADS
        if (!block) Py_RETURN_FALSE;
        char *data = data_of(block);
        c10::profiledCPUMemoryReporter().New(data, bytes);
        c10::DataPtr pointer(data, data, &release, c10::Device(c10::kCPU));
        tensor->set_storage_keep_dtype(c10::make_intrusive<c10::StorageImpl>(
            c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer), allocator, true));
        tensor->set_sizes_and_strides(size, stride);
        Py_RETURN_TRUE;
    } catch (const std::exception &problem) {
        PyErr_SetString(PyExc_RuntimeError, problem.what());
        return NULL;
    }
}

/* keep(most) -> bytes that may be in the pool until now, and from now on `most` */
PyObject *keep(PyObject *, PyObject *args) {
    long long wanted;
    if (!PyArg_ParseTuple(args, "L", &wanted)) return NULL;
    int64_t now = nanoseconds(CLOCK_MONOTONIC);
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    wanted = most.exchange(wanted);
    Block *old = old_ones(now);
    pthread_mutex_unlock(&lock);
    unmap_all(old);
    Py_END_ALLOW_THREADS
    return PyLong_FromLongLong(wanted);
}

/* drop() -> None: unmaps what is in the pool. Not `keep(0)` and back: of two threads that do that
   at once the second would find 0, and nothing would be kept any more. */
PyObject *drop(PyObject *, PyObject *) {
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    Block *all = everything();
    pthread_mutex_unlock(&lock);
    unmap_all(all);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* kept() -> bytes in the pool */
PyObject *kept(PyObject *, PyObject *) {
    pthread_mutex_lock(&lock);
    int64_t found = held;
    pthread_mutex_unlock(&lock);
    return PyLong_FromLongLong(found);
}

PyMethodDef methods[] = {
    {"place", place, METH_VARARGS,
     "place(implementation, size, stride, limit) -> whether that tensor has got memory"},
    {"keep", keep, METH_VARARGS, "keep(most) -> bytes that the pool could keep until now"},
    {"drop", drop, METH_NOARGS, "drop() -> None: unmaps what is in the pool"},
    {"kept", kept, METH_NOARGS, "kept() -> bytes in the pool"},
    {NULL, NULL, 0, NULL},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "srcjit_large_memory", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

}  // namespace

PyMODINIT_FUNC PyInit_srcjit_large_memory(void) {
    front = sysconf(_SC_PAGESIZE);
    most = std::min(MOST, (int64_t)sysconf(_SC_PHYS_PAGES) * front / 16);
    if (pthread_atfork(before_fork, after_fork, after_fork)) return PyErr_NoMemory();
    return PyModule_Create(&definition);
}
