/* A library that is loaded late and allocates. */
#include <stdlib.h>

void inner(void) { free(malloc(5000002)); }
