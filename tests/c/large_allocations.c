/* Counts allocations of at least LARGE_BYTES in a whole process: loaded with LD_PRELOAD, asked by ctypes. glibc only.
   Python's own arenas and the stacks of threads come from mmap and are not counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#ifndef LARGE_BYTES
#define LARGE_BYTES 100000
#endif

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long count;
static atomic_size_t largest;

static void note(size_t bytes) {
    if (bytes < LARGE_BYTES) return;
    atomic_fetch_add(&count, 1);
    size_t seen = atomic_load(&largest);
    while (seen < bytes && !atomic_compare_exchange_weak(&largest, &seen, bytes)) {}
}

long large_allocations(void) { return atomic_load(&count); }

/* The largest since the last call. */
size_t largest_allocation(void) { return atomic_exchange(&largest, 0); }

void *malloc(size_t bytes) {
    note(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t each) {
    note(number * each);
    return __libc_calloc(number, each);
}

void *realloc(void *old, size_t bytes) {
    note(bytes);
    return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    note(bytes);
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **block, size_t alignment, size_t bytes) {
    void *made = memalign(alignment, bytes);
    if (made == NULL) return ENOMEM;
    *block = made;
    return 0;
}
