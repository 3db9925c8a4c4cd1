/* pairs THREADS MILLIONS: how long malloc and free take, in nanoseconds of CPU a pair. For measuring only. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long pairs;

static void *work(void *unused) {
    for (long i = 0; i < pairs; i++) {
        void *volatile block = malloc(16 + (i & 255));
        free(block);
    }
    return unused;
}

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 1;
    pairs = (count > 2 ? atol(arguments[2]) : 5) * 1000000;
    pthread_t ids[64];
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    printf("%d threads: %.1f ns CPU a pair, wall %.2f s\n", threads, (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / pairs / threads,
           (now(CLOCK_MONOTONIC) - wall) / 1e9);
    return 0;
}
