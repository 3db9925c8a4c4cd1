/* steady STEPS THREADS LARGEST: every kind of request in an order that is the same each time. With threads, each has its own blocks and hands
   some to the next. A tenth of the blocks is never given back. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 2000, MARK = 12347 /* starts count.c again */ };
static long steps, threads, largest;
static void *_Atomic handed[64][16];

static void *work(void *argument) {
    long number = (long)argument;
    uint64_t dice = 88172645463325252ul + number * 977;
    void **slots = calloc(SLOTS, sizeof *slots);
    for (long step = 0; step < steps; step++) {
        dice ^= dice << 13; dice ^= dice >> 7; dice ^= dice << 17;
        void **slot = &slots[dice % SLOTS];
        size_t size = 1 + (dice >> 20) % largest;
        if (size == MARK) size++;
        switch ((dice >> 50) % 8) {
        case 0: free(*slot); *slot = calloc(1, size); break;
        case 1: case 2: *slot = realloc(*slot, size); break;
        case 3: free(*slot); if (posix_memalign(slot, 64, size)) *slot = NULL; break;
        case 4: free(*slot); *slot = NULL; break;
        case 5:
            if (threads > 1) { *slot = __atomic_exchange_n((void **)&handed[(number + 1) % threads][step % 16], *slot, __ATOMIC_SEQ_CST); break; }
            /* falls through */
        default: free(*slot); *slot = malloc(size);
        }
    }
    for (long slot = 0; slot < SLOTS; slot++) if (slot % 10) free(slots[slot]);
    return slots;
}

int main(int count, char **arguments) {
    steps = count > 1 ? atol(arguments[1]) : 100000;
    threads = count > 2 ? atol(arguments[2]) : 1;
    largest = count > 3 ? atol(arguments[3]) : 3000;
    free(malloc(MARK));
    if (threads == 1) { work(0); return 0; }
    pthread_t ids[64];
    for (long i = 0; i < threads; i++) pthread_create(&ids[i], NULL, work, (void *)i);
    for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}
