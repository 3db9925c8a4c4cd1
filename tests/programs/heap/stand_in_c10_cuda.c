// A stand-in for PyTorch's libc10_cuda.so: an allocator of device memory that is none, with a lock for each device, which reports to libc10.so as the real one
// does and counts by itself what a recording must come to. Addresses are the same on every device, and are given out again.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICES 4
#define TAGS 8
#define CLASSES 40
#define BASE 0x7f4200000000
#define KEPT 4096

struct device {
    int8_t type, index;
};

void report(void *block, int64_t size, size_t allocated, size_t reserved, struct device device) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void out_of_memory(int64_t size, size_t allocated, size_t reserved, struct device device) __asm__(
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

struct counts {
    uint64_t allocations, frees, bytes, allocated, peak, reserved, failures, checksum;
    uint64_t live_of_tag[TAGS];
};

static struct counts own_counts[DEVICES];
static struct counts *counts = own_counts;
static uint64_t capacity = UINT64_MAX;

static struct {
    pthread_mutex_t lock;
    uint64_t next;
    uint64_t kept[CLASSES][KEPT];
    int have[CLASSES];
} devices[DEVICES] = {[0 ... DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

// Counts into a file from now on, which is there after the process was killed.
int stand_in_count_into(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof own_counts)) return -1;
    void *mapped = mmap(NULL, sizeof own_counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -1;
    counts = mapped;
    return 0;
}

void stand_in_capacity(uint64_t bytes) { capacity = bytes; }

static int class_of(uint64_t size) {
    int found = 9;
    while (((uint64_t)1 << found) < size) found++;
    return found;
}

static uint64_t sum(uint64_t a, uint64_t b, uint64_t c, uint64_t d, struct device device) {
    return a * 3 + b * 5 + c * 7 + d * 11 + (uint8_t)device.type * 13 + (uint8_t)device.index * 17;
}

uint64_t stand_in_allocate(int index, uint64_t size, int tag) {
    struct device device = {1, (int8_t)index};
    struct counts *count = &counts[index];
    pthread_mutex_lock(&devices[index].lock);
    int class = class_of(size);
    uint64_t address, room = (uint64_t)1 << class;
    if (devices[index].have[class] > 0) {
        address = devices[index].kept[class][--devices[index].have[class]];
    } else if (count->reserved + room > capacity) {
        count->checksum += sum(0, size, count->allocated, count->reserved, device);
        out_of_memory(size, count->allocated, count->reserved, device);
        count->failures++;
        pthread_mutex_unlock(&devices[index].lock);
        return 0;
    } else {
        address = BASE + devices[index].next;
        devices[index].next += room;
        count->reserved += room;
    }
    uint64_t allocated = count->allocated + size;
    count->checksum += sum(address, size, allocated, count->reserved, device);
    report((void *)address, size, allocated, count->reserved, device);
    count->allocations++;
    count->bytes += size;
    count->allocated = allocated;
    if (allocated > count->peak) count->peak = allocated;
    count->live_of_tag[tag] += size;
    pthread_mutex_unlock(&devices[index].lock);
    return address;
}

void stand_in_free(int index, uint64_t address, uint64_t size, int tag) {
    struct device device = {1, (int8_t)index};
    struct counts *count = &counts[index];
    pthread_mutex_lock(&devices[index].lock);
    int class = class_of(size);
    uint64_t allocated = count->allocated - size;
    count->checksum += sum(address, -size, allocated, count->reserved, device);
    report((void *)address, -(int64_t)size, allocated, count->reserved, device);
    count->frees++;
    count->allocated = allocated;
    count->live_of_tag[tag] -= size;
    if (devices[index].have[class] < KEPT) devices[index].kept[class][devices[index].have[class]++] = address;
    pthread_mutex_unlock(&devices[index].lock);
}

void stand_in_counts(int index, struct counts *result) { *result = counts[index]; }

// A report about a CPU tensor, as the real library makes them while its own profiler runs.
void stand_in_cpu_report(uint64_t address, int64_t size) {
    struct device device = {0, 0};
    counts[0].checksum += sum(address, size, 1, 2, device);
    report((void *)address, size, 1, 2, device);
}

// The given number of pairs of an allocation and its free, in one call.
void stand_in_pairs(int index, uint64_t size, uint64_t pairs) {
    for (uint64_t pair = 0; pair < pairs; pair++) stand_in_free(index, stand_in_allocate(index, size, 0), size, 0);
}

struct work {
    int index, count, tag;
    uint64_t size;
};

static void *allocate_all(void *argument) {
    struct work *work = argument;
    for (int turn = 0; turn < work->count; turn++) stand_in_allocate(work->index, work->size, work->tag);
    return NULL;
}

// Allocates in a thread that runs no Python, as an autograd engine does, and waits for it.
int stand_in_engine(int index, uint64_t size, int count, int tag) {
    struct work work = {index, count, tag, size};
    pthread_t thread;
    return pthread_create(&thread, NULL, allocate_all, &work) || pthread_join(thread, NULL);
}
