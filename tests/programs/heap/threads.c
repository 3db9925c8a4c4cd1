/* threads THREADS ROUNDS: threads that allocate, fifty at a time, each with a destructor of thread-specific data that allocates too, in several rounds.
   Everything is given back, some of it by another thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_key_t key;
static long rounds;
static void *volatile left[4096];

static void late(void *value) {
    free(malloc(500));
    intptr_t again = (intptr_t)value - 1;
    if (again) pthread_setspecific(key, (void *)again);
}

static void *work(void *argument) {
    long number = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", number);
    pthread_setname_np(pthread_self(), name);
    pthread_setspecific(key, (void *)3);
    for (long round = 0; round < rounds; round++) {
        char *block = malloc(100 + round % 50);
        block[0] = 1;
        block = realloc(block, 300);
        free(block);
    }
    left[number % 4096] = malloc(700);
    return NULL;
}

int main(int count, char **arguments) {
    long threads = count > 1 ? atol(arguments[1]) : 4;
    rounds = count > 2 ? atol(arguments[2]) : 1000;
    pthread_key_create(&key, late);
    pthread_t *ids = calloc(threads, sizeof *ids);
    free(malloc(7777001));
    for (long wave = 0; wave < threads; wave += 50) {
        long end = wave + 50 < threads ? wave + 50 : threads;
        for (long i = wave; i < end; i++)
            if (pthread_create(&ids[i], NULL, work, (void *)i)) return 1;
        for (long i = wave; i < end; i++) pthread_join(ids[i], NULL);
    }
    for (long i = 0; i < threads; i++) free(left[i % 4096]);
    free(malloc(7777002));
    free(ids);
    return 0;
}
