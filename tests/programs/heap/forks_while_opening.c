/* forks_while_opening LIBRARY TIMES: forks while another thread opens and closes a library. A child only allocates, which must work whatever the other thread
   held at that moment; one that comes to no end is ended by its alarm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over;

static void *opens(void *path) {
    while (!over) {
        void *library = dlopen(path, RTLD_NOW);
        if (library) dlclose(library);
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t thread;
    if (count < 3) return 2;
    pthread_create(&thread, NULL, opens, arguments[1]);
    for (int i = 0; i < atoi(arguments[2]); i++) {
        usleep(i % 7 * 50);
        pid_t id = fork();
        if (id == 0) {
            alarm(20);
            for (int block = 0; block < 10; block++) free(malloc(4000001 + block));
            _exit(0);
        }
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
