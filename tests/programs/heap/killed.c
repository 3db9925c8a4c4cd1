/* Allocates without end and says on standard output after each that it has it. */
#include <stdlib.h>
#include <unistd.h>

int main(void) {
    for (unsigned i = 0;; i++) {
        void *volatile block = malloc(1000 + i % 1000);
        if (!block || write(1, &i, sizeof i) != sizeof i) return 1;
        free(block);
    }
}
