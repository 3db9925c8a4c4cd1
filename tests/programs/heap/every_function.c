/* Calls every hooked function once, with a size that is its own (1000003 and so on), and gives everything back. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
    void *volatile block;
    free(block = malloc(1000003));
    free(block = calloc(1, 1000004));
    block = malloc(1000005);
    block = realloc(block, 1000006);
    block = reallocarray(block, 1, 1000007);
    free(block);
    void *aligned;
    assert(!posix_memalign(&aligned, 64, 1000008));
    free(aligned);
    free(block = aligned_alloc(64, 1000064));
    free(block = memalign(64, 1000010));
    free(block = valloc(1000011));
    free(block = pvalloc(1000012));
    char *map = mmap(NULL, 1003520, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(map != MAP_FAILED);
    map = mremap(map, 1003520, 2007040, MREMAP_MAYMOVE);
    assert(map != MAP_FAILED);
    munmap(map, 2007040);
    map = mmap64(NULL, 1011712, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(map, 1011712);
    void *end = sbrk(1015808);
    assert(end != (void *)-1);
    assert(!brk((char *)end));
    block = malloc(1000013);
    errno = 0;
    void *volatile more = realloc(block, SIZE_MAX / 4);
    assert(!more && errno == ENOMEM);
    free(block);
    more = malloc(SIZE_MAX / 4 - 16);
    assert(!more && errno == ENOMEM);
    assert(mmap(NULL, SIZE_MAX / 4 + 1 - 4096 * 8, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    prctl(PR_SET_NAME, "renamed", 0, 0, 0);
    return 0;
}
