/* An independent count: a library that is preloaded behind the hooks and counts what reaches the real allocator between two requests of
   marked sizes. On the second it writes "allocations bytes frees" to the descriptor in COUNTING_FD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEGIN = 7777001, END = 7777002 };
static _Atomic long allocations, bytes, frees, counting;
static char bootstrap[4096];
static size_t bootstrapped;

static void *next(const char *name) {
    static __thread volatile int looking;
    if (looking) return NULL;
    looking = 1;
    void *found = dlsym(RTLD_NEXT, name);
    looking = 0;
    return found;
}

static void note(void *block, size_t size) {
    if (size == BEGIN) { counting = 1; return; }
    if (size == END && counting) {
        counting = 0;
        const char *where = getenv("COUNTING_FD");
        char line[100];
        int length = snprintf(line, sizeof line, "%ld %ld %ld\n", allocations, bytes, frees);
        if (where && write(atoi(where), line, length) != length) abort();
        return;
    }
    if (counting && block) { allocations++; bytes += size; }
}

void *malloc(size_t size) {
    static void *(*real)(size_t);
    if (!real) real = next("malloc");
    if (!real) return NULL;
    void *block = real(size);
    note(block, size);
    return block;
}

void *calloc(size_t count, size_t size) {
    static void *(*real)(size_t, size_t);
    if (!real) real = next("calloc");
    if (!real) { void *block = bootstrap + bootstrapped; bootstrapped += (count * size + 15) & ~15ul; return block; }
    void *block = real(count, size);
    note(block, count * size);
    return block;
}

void *realloc(void *old, size_t size) {
    static void *(*real)(void *, size_t);
    if (!real) real = next("realloc");
    if (counting && old) frees++;
    void *block = real(old, size);
    if (counting && old && !block && size) frees--;
    note(block, size);
    return block;
}

void free(void *block) {
    static void (*real)(void *);
    if (!block || ((char *)block >= bootstrap && (char *)block < bootstrap + sizeof bootstrap)) return;
    if (!real) real = next("free");
    if (counting) frees++;
    if (real) real(block);
}

int posix_memalign(void **place, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real) real = next("posix_memalign");
    int result = real(place, alignment, size);
    if (!result) note(*place, size);
    return result;
}
