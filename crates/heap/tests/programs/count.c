/* An independent count of a whole process: preloaded behind the hooks, it keeps the size of every block in a table of its own and at the end
   writes "allocations bytes peak live" to the file in COUNT_TO. A request of MARK bytes starts it again: what the loader does before `main`, the hooks
   do not see. One lock around everything: slow, and certain. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLACES = 1 << 21, MARK = 12347 };
static struct { uintptr_t address; size_t size; } table[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t allocations, bytes, peak, live;
static char early[8192];
static size_t early_used;

static size_t place_of(uintptr_t address) { return (address >> 4) * 0x9e3779b97f4a7c15ul >> 43; }

static void came(void *block, size_t size) {
    if (!block) return;
    if (size == MARK) { allocations = bytes = peak = live = 0; memset(table, 0, sizeof table); }
    size_t at = place_of((uintptr_t)block);
    while (table[at].address) at = (at + 1) % PLACES;
    table[at].address = (uintptr_t)block;
    table[at].size = size;
    allocations++;
    bytes += size;
    live += size;
    if (live > peak) peak = live;
}

/* Takes the block out and closes the gap, so that no search ever stops too early. */
static size_t went(void *block) {
    size_t at = place_of((uintptr_t)block);
    while (table[at].address && table[at].address != (uintptr_t)block) at = (at + 1) % PLACES;
    if (!table[at].address) return 0;
    size_t size = table[at].size;
    live -= size;
    for (size_t next = (at + 1) % PLACES; table[next].address; next = (next + 1) % PLACES) {
        size_t home = place_of(table[next].address);
        if (((next - home) & (PLACES - 1)) >= ((next - at) & (PLACES - 1))) { table[at] = table[next]; at = next; }
    }
    table[at].address = 0;
    return size;
}

/* The loader allocates while it looks; what it asks for then comes from `early`. */
static void *next(const char *name) {
    static __thread volatile int looking;
    if (looking) return NULL;
    looking = 1;
    void *found = dlsym(RTLD_NEXT, name);
    looking = 0;
    return found;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)next(#name)

void *malloc(size_t size) {
    REAL(malloc);
    if (!real) { void *block = early + early_used; early_used += (size + 15) & ~15ul; return block; }
    pthread_mutex_lock(&lock);
    void *block = real(size);
    came(block, size);
    pthread_mutex_unlock(&lock);
    return block;
}

void *calloc(size_t count, size_t size) {
    REAL(calloc);
    if (!real) { void *block = early + early_used; early_used += (count * size + 15) & ~15ul; return block; }
    pthread_mutex_lock(&lock);
    void *block = real(count, size);
    came(block, count * size);
    pthread_mutex_unlock(&lock);
    return block;
}

void *realloc(void *old, size_t size) {
    REAL(realloc);
    pthread_mutex_lock(&lock);
    size_t before = old ? went(old) : 0;
    void *block = real(old, size);
    if (block) came(block, size);
    else if (old && size) { came(old, before); allocations--; bytes -= before; }
    pthread_mutex_unlock(&lock);
    return block;
}

void free(void *block) {
    REAL(free);
    if (!real || !block || ((char *)block >= early && (char *)block < early + sizeof early)) return;
    pthread_mutex_lock(&lock);
    went(block);
    real(block);
    pthread_mutex_unlock(&lock);
}

int posix_memalign(void **place, size_t alignment, size_t size) {
    REAL(posix_memalign);
    pthread_mutex_lock(&lock);
    int result = real(place, alignment, size);
    if (!result) came(*place, size);
    pthread_mutex_unlock(&lock);
    return result;
}

void *aligned_alloc(size_t alignment, size_t size) {
    REAL(aligned_alloc);
    pthread_mutex_lock(&lock);
    void *block = real(alignment, size);
    came(block, size);
    pthread_mutex_unlock(&lock);
    return block;
}

__attribute__((destructor)) static void say(void) {
    const char *to = getenv("COUNT_TO");
    int file = to ? open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    char line[200];
    int length = snprintf(line, sizeof line, "%zu %zu %zu %zu\n", allocations, bytes, peak, live);
    if (file >= 0 && write(file, line, length) == length) close(file);
}
