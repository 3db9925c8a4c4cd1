// Addresses that are reserved, used in part, and given up again.
#include <stddef.h>
#include <sys/mman.h>

int main(void) {
    const size_t whole = (size_t)1 << 36, part = 3 << 20;
    char *place = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return 1;
    char *used = mmap(place + part, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (used != place + part) return 2;
    used[0] = 1;
    if (mmap(used, part, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != used) return 3;
    return munmap(place, whole) == 0 ? 0 : 4;
}
