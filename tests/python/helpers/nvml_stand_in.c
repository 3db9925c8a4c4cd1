/* Stands in for libnvidia-ml.so where a test needs GPUs there are none of. STAND_IN_KIND names the machine:

   plain (or unset)   one device of 16 GiB
   pair               two devices of 16 GiB; the processes are on device 1 only
   mig                device 0 split into two instances of 4 GiB, device 1 of 16 GiB whole
   unified            one device that uses the host's memory: NVML answers "not supported" for its memory

   STAND_IN_USED_GIB are in use on each device and instance. STAND_IN_HOLDERS names a file with a line "PID MIB" for each
   process on every device. What this library does not have, a caller takes for "not supported". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long bytes;
typedef struct { bytes total, free, used; } memory;
typedef struct { unsigned version; bytes total, reserved, free, used; } memory_v2;
typedef struct { unsigned pid; bytes used; unsigned gpu_instance, compute_instance; } process;

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

static const bytes MIB = 1ULL << 20, GIB = 1ULL << 30;
/* Handles: device i is i + 1, instance j of device i is 100 * (i + 1) + j. */
static const size_t INSTANCES = 100;

static int is(const char *kind) {
    const char *asked = getenv("STAND_IN_KIND");
    return strcmp(asked ? asked : "plain", kind) == 0;
}

static bytes used(void) {
    const char *configured = getenv("STAND_IN_USED_GIB");
    return (configured ? strtoull(configured, NULL, 10) : 0) * GIB;
}

static int is_instance(void *device) { return (size_t)device >= INSTANCES; }
static int is_split(void *device) { return is("mig") && (size_t)device == 1; }
static bytes total(void *device) { return (is_instance(device) ? 4 : 16) * GIB; }

int nvmlInit_v2(void) { return OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = is("mig") || is("pair") ? 2 : 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return OK; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    strncpy(name, is_instance(device) ? "Stand-in MIG" : "Stand-in", size);
    return OK;
}

int nvmlDeviceGetUUID(void *device, char *name, unsigned size) {
    size_t handle = (size_t)device;
    if (is_instance(device)) {
        snprintf(name, size, "MIG-stand-in-%zu-%zu", handle / INSTANCES - 1, handle % INSTANCES);
    } else if (handle == 1) {
        strncpy(name, "GPU-stand-in", size);
    } else {
        snprintf(name, size, "GPU-stand-in-%zu", handle - 1);
    }
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *into) {
    if (is("unified")) return NOT_SUPPORTED;
    into->total = total(device);
    into->used = used();
    into->free = into->total - into->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *into) {
    if (is("unified")) return NOT_SUPPORTED;
    into->total = total(device);
    into->reserved = 0;
    into->used = used();
    into->free = into->total - into->used;
    return OK;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    *current = *pending = is_split(device);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = is_split(device) ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
    if (!is_split(device) || index >= 2) return NOT_FOUND;
    *instance = (void *)((size_t)device * INSTANCES + index);
    return OK;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *instance, void **device) {
    *device = (void *)((size_t)instance / INSTANCES);
    return OK;
}
/* Instances have no sensor of their own. */
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *degrees) {
    (void)sensor;
    if (is_instance(device)) return NOT_SUPPORTED;
    *degrees = 41;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *into) {
    const char *path = getenv("STAND_IN_HOLDERS");
    int is_there = !is("pair") || (size_t)device == 2;
    FILE *file = path && is_there ? fopen(path, "r") : NULL;
    unsigned found = 0, room = into ? *count : 0, pid;
    bytes held;
    while (file && fscanf(file, "%u %llu", &pid, &held) == 2) {
        if (found < room) {
            into[found].pid = pid;
            into[found].used = held * MIB;
            into[found].gpu_instance = into[found].compute_instance = 0xFFFFFFFF;
        }
        found++;
    }
    if (file) fclose(file);
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
