// A stand-in for PyTorch's libc10.so: the two functions by which its allocators report, and the allocator of CPU tensors. What was reported is added up, so that a
// test sees whether a recorder passes everything on as it was.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct device {
    int8_t type, index;
};

static struct sums {
    uint64_t reports, failures, checksum, cpu_reports;
} sums;

static void add(uint64_t a, uint64_t b, uint64_t c, uint64_t d, struct device device) {
    uint64_t sum = a * 3 + b * 5 + c * 7 + d * 11 + (uint8_t)device.type * 13 + (uint8_t)device.index * 17;
    __atomic_fetch_add(&sums.checksum, sum, __ATOMIC_RELAXED);
}

#ifndef WITHOUT_REPORTS
void report(void *block, int64_t size, size_t allocated, size_t reserved, struct device device) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void out_of_memory(int64_t size, size_t allocated, size_t reserved, struct device device) __asm__(
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

void report(void *block, int64_t size, size_t allocated, size_t reserved, struct device device) {
    __atomic_fetch_add(device.type ? &sums.reports : &sums.cpu_reports, 1, __ATOMIC_RELAXED);
    add((uint64_t)block, size, allocated, reserved, device);
}

void out_of_memory(int64_t size, size_t allocated, size_t reserved, struct device device) {
    __atomic_fetch_add(&sums.failures, 1, __ATOMIC_RELAXED);
    add(0, size, allocated, reserved, device);
}
#endif

void stand_in_sums(struct sums *result) { *result = sums; }

void *alloc_cpu(size_t bytes) __asm__("_ZN3c109alloc_cpuEm");
__attribute__((noinline)) void *alloc_cpu(size_t bytes) {
    void *block = NULL;
    return posix_memalign(&block, 64, bytes) ? NULL : block;
}

void *stand_in_tensor(size_t bytes) {
    void *block = alloc_cpu(bytes);
    return block;
}

// The same request, not by the allocator of tensors.
__attribute__((noinline)) void *stand_in_aligned(size_t bytes) {
    void *block = NULL;
    return posix_memalign(&block, 64, bytes) ? NULL : block;
}
