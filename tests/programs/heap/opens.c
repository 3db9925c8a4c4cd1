/* opens LIBRARY [HOOK]: opens a library that opens another; with HOOK, records that from inside. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    int (*start)(uint32_t, const char *) = NULL;
    int (*stop)(void) = NULL;
    if (count > 2) {
        void *hook = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
        if (!hook) return 2;
        start = (int (*)(uint32_t, const char *))dlsym(hook, "stormlog_heap_start");
        stop = (int (*)(void))dlsym(hook, "stormlog_heap_stop");
        if (start(1, getenv("HEAP_OPTIONS"))) return 3;
    }
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (!library) return 4;
    int (*outer)(void) = (int (*)(void))dlsym(library, "outer");
    if (!outer || !outer()) return 5;
    if (stop && stop()) return 6;
    return 0;
}
