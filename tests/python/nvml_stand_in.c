/* Stands in for libnvidia-ml.so where a test needs a GPU there is none of: one device of 16 GiB, of which
   STAND_IN_USED_GIB are in use. What it does not have, a caller takes for "not supported". */
#include <stdlib.h>
#include <string.h>

typedef unsigned long long bytes;
typedef struct { bytes total, free, used; } memory;
typedef struct { unsigned version; bytes total, reserved, free, used; } memory_v2;

static const bytes GIB = 1ULL << 30;

static bytes used(void) {
    const char *told = getenv("STAND_IN_USED_GIB");
    return (told ? strtoull(told, NULL, 10) : 0) * GIB;
}

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) { (void)device; strncpy(name, "Stand-in", size); return 0; }
int nvmlDeviceGetUUID(void *device, char *name, unsigned size) { (void)device; strncpy(name, "GPU-stand-in", size); return 0; }

int nvmlDeviceGetMemoryInfo(void *device, memory *into) {
    (void)device;
    into->total = 16 * GIB;
    into->used = used();
    into->free = into->total - into->used;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *into) {
    (void)device;
    into->total = 16 * GIB;
    into->reserved = 0;
    into->used = used();
    into->free = into->total - into->used;
    return 0;
}
