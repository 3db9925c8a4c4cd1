/* A thread that has allocated gets a name from outside, another gives itself one; prints the kernel's number of each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_barrier_t begun, named;

static void *waits(void *unused) {
    void *volatile block = malloc(2000001);
    free(block);
    printf("%ld\n", syscall(SYS_gettid));
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&named);
    return unused;
}

static void *names_itself(void *unused) {
    void *volatile block = malloc(2000002);
    free(block);
    prctl(PR_SET_NAME, "by-itself");
    printf("%ld\n", syscall(SYS_gettid));
    return unused;
}

int main(void) {
    pthread_t first, second;
    pthread_barrier_init(&begun, NULL, 2);
    pthread_barrier_init(&named, NULL, 2);
    pthread_create(&first, NULL, waits, NULL);
    pthread_barrier_wait(&begun);
    if (pthread_setname_np(first, "from-outside")) return 1;
    pthread_barrier_wait(&named);
    pthread_join(first, NULL);
    pthread_create(&second, NULL, names_itself, NULL);
    pthread_join(second, NULL);
    return 0;
}
