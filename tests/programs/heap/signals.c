/* Signal handlers that ask for memory: one that is raised between allocations (malloc), one that comes at any moment (mmap). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>

static void allocates(int signal) {
    (void)signal;
    free(malloc(3000001));
}

static void maps(int signal) {
    (void)signal;
    void *map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED) munmap(map, 4096);
}

int main(void) {
    signal(SIGUSR1, allocates);
    signal(SIGALRM, maps);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 200000; i++) {
        void *volatile block = malloc(48);
        if (i % 20000 == 0) raise(SIGUSR1);
        free(block);
    }
    return 0;
}
