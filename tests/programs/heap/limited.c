/* Asks for 8 MiB again and again under an address-space limit until that fails; prints the step that failed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(void) {
    struct rlimit limit = {1ul << 30, 1ul << 30};
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
