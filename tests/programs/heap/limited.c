/* Asks for 8 MiB again and again under an address-space limit until that fails; prints the step that failed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(void) {
    /* Nearly a whole block is left at the last step: room for the address space of a library built without optimisation. */
    struct rlimit limit = {1026ul << 20, 1026ul << 20};
    setrlimit(RLIMIT_AS, &limit);
    for (int step = 0; step < 200; step++) {
        size_t size = (size_t)8 << 20;
        if (!malloc(size)) {
            printf("%d\n", step);
            return 0;
        }
    }
    return 1;
}
