/* half_loaded LIBRARY OTHER HOOK: a thread is stopped while it loads LIBRARY, before that is relocated; another allocates then, after it has loaded OTHER.
   With -DSLOW, -DUSES: LIBRARY's own library, which stops the loader, and LIBRARY. */
#define _GNU_SOURCE
#include <stdlib.h>

enum { HERE = 777, GO_ON = 778 };

#if defined SLOW
static long call(long number, long a, long b, long c) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}
static int answer(void) { return 1; }
static void *choose(void) {
    char byte = 0;
    call(1, HERE, (long)&byte, 1);
    call(0, GO_ON, (long)&byte, 1);
    return answer;
}
static int chosen(void) __attribute__((ifunc("choose")));
int slow(void) { return chosen(); }

#elif defined USES
int slow(void);
int use(void) {
    free(malloc(5000002));
    return slow();
}

#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

static int go[2];

static void *loads(void *path) {
    char byte;
    if (read(go[0], &byte, 1) != 1) return NULL;
    void *library = dlopen(path, RTLD_NOW);
    int (*use)(void) = library ? (int (*)(void))dlsym(library, "use") : NULL;
    return use && use() ? path : NULL;
}

int main(int count, char **arguments) {
    int here[2], go_on[2];
    char byte = 0;
    void *hook = count > 3 ? dlopen(arguments[3], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!hook || pipe(go) || pipe(here) || pipe(go_on)) return 2;
    if (dup2(here[1], HERE) != HERE || dup2(go_on[0], GO_ON) != GO_ON) return 3;
    int (*start)(uint32_t, const char *) = (int (*)(uint32_t, const char *))dlsym(hook, "stormlog_heap_start");
    int (*stop)(void) = (int (*)(void))dlsym(hook, "stormlog_heap_stop");
    if (start(1, getenv("HEAP_OPTIONS"))) return 4;
    pthread_t thread;
    void *done;
    if (pthread_create(&thread, NULL, loads, arguments[1])) return 5;
    if (!dlopen(arguments[2], RTLD_NOW)) return 6;
    if (write(go[1], &byte, 1) != 1 || read(here[0], &byte, 1) != 1) return 7;
    free(malloc(5000001));
    if (write(go_on[1], &byte, 1) != 1) return 8;
    if (pthread_join(thread, &done) || !done) return 9;
    return stop();
}
#endif
