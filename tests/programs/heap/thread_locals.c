/* thread_locals DIRECTORY COUNT: opens lib0.so to libN.so, each with thread-local storage, and uses that of every tenth.
   The thread's own table of such storage is then older than the loader's, and larger than the loader's list has entries: glibc numbers the
   storage of a library before its list has an entry for it. With -DLIBRARY: the library. */
#ifdef LIBRARY
static _Thread_local int counter;
int count(void) { return ++counter; }

#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int arguments, char **values) {
    int wanted = arguments > 2 ? atoi(values[2]) : 0;
    for (int number = 0; number < wanted; number++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/lib%d.so", values[1], number);
        void *library = dlopen(path, RTLD_NOW);
        int (*count)(void) = library ? (int (*)(void))dlsym(library, "count") : NULL;
        if (!count) return 2;
        if (number % 10 == 0 && count() != 1) return 3;
    }
    free(malloc(5000001));
    return 0;
}
#endif
