/* forks_while_stopping HOOK TIMES: forks while another thread starts and stops recordings. Each child records and stops by itself; one that comes to no end
   is ended by its alarm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*start)(uint32_t, const char *);
static int (*stop)(void);
static volatile int over;

static void *switches(void *options) {
    while (!over) {
        start(1, options);
        free(malloc(100));
        stop();
    }
    return NULL;
}

static int child(const char *options) {
    alarm(20);
    free(malloc(200));
    stop();
    int error = start(1, options);
    if (error == EDEADLK) return 0;
    if (error) return 100;
    free(malloc(4000001));
    return stop() ? 101 : 0;
}

int main(int count, char **arguments) {
    void *hook = count > 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!hook) return 2;
    start = (int (*)(uint32_t, const char *))dlsym(hook, "stormlog_heap_start");
    stop = (int (*)(void))dlsym(hook, "stormlog_heap_stop");
    pthread_t thread;
    pthread_create(&thread, NULL, switches, getenv("HEAP_OPTIONS"));
    for (int i = 0; i < atoi(arguments[2]); i++) {
        usleep(i % 7 * 100);
        if (i % 2) free(malloc(300)); /* so that this thread, too, may be one that is recorded */
        pid_t id = fork();
        if (id == 0) _exit(child(getenv("CHILD_OPTIONS")));
        int status;
        if (id < 0 || waitpid(id, &status, 0) != id) return 3;
        if (status) {
            fprintf(stderr, "child %d ended with status %d\n", i, status);
            return 4;
        }
    }
    over = 1;
    pthread_join(thread, NULL);
    return 0;
}
