/* A library whose own RUNPATH ($ORIGIN/deep) is the only way to the library it opens. */
#include <dlfcn.h>
#include <stdlib.h>

int outer(void) {
    void *library = dlopen("libinner.so", RTLD_NOW);
    if (!library) return 0;
    void (*inner)(void) = (void (*)(void))dlsym(library, "inner");
    if (!inner) return 0;
    inner();
    dlclose(library);
    free(malloc(5000003));
    return 1;
}
