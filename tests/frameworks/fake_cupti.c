/* A stand-in for NVIDIA's CUPTI and the driver under it, for machines without a GPU.
 *
 * It has the four functions that are called, with the types of cupti_callbacks.h, and reports to a subscriber
 * allocations as the real one does: a call of the runtime twice, as the driver's and as its own. With OWNER defined it
 * is a library that allocates, to be built under the name of a real one.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { DRIVER = 1, RUNTIME = 2, RESOURCE = 3, ENTER = 0, EXIT = 1 };
enum {
    cuMemAlloc_v2 = 243, cuMemFree_v2 = 245, cuMemCreate = 549, cuMemRelease = 550, cuMemMap = 551, cuMemUnmap = 552,
    cuMemRetainAllocationHandle = 565, cuMemAllocAsync = 598, cudaMalloc = 20, cudaFree = 22, cudaMallocAsync = 373
};

#ifdef OWNER

uintptr_t fake_allocate(size_t size, int device);
uintptr_t fake_allocate_async(size_t size, int device);
uintptr_t fake_create(size_t size, int kind, int device);
void fake_free(uintptr_t address);
void fake_release(uintptr_t handle);

__attribute__((noinline)) uintptr_t owner_take(size_t size, int device) { uintptr_t taken = fake_allocate(size, device); __asm__(""); return taken; }
__attribute__((noinline)) uintptr_t owner_take_async(size_t size, int device) { uintptr_t taken = fake_allocate_async(size, device); __asm__(""); return taken; }
typedef uintptr_t (*Taking)(size_t size, int device);
/* As PyTorch's allocator does with an allocator that was plugged into one of its pools. */
__attribute__((noinline)) uintptr_t owner_take_by(Taking other, size_t size, int device) { uintptr_t taken = other(size, device); __asm__(""); return taken; }
__attribute__((noinline)) uintptr_t owner_create(size_t size, int kind, int device) { uintptr_t taken = fake_create(size, kind, device); __asm__(""); return taken; }

static void *take_in_thread(void *size) { owner_take((size_t)size, 0); return NULL; }
int owner_take_elsewhere(size_t size) {
    pthread_t thread;
    return pthread_create(&thread, NULL, take_in_thread, (void *)size) || pthread_join(thread, NULL);
}

void owner_give_back(uintptr_t address) { fake_free(address); __asm__(""); }
void owner_release(uintptr_t handle) { fake_release(handle); __asm__(""); }

#else

typedef void (*Callback)(void *user, int domain, uint32_t number, const void *data);
struct Data {
    int site;
    const char *name;
    const void *arguments;
    void *returned;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *correlation;
    uint32_t correlation_number;
};

static Callback callback;
static void *user;
static unsigned char enabled[4][1024];
static uintptr_t next_address = 0x7f0000000000;

int cuptiSubscribe(void **subscriber, Callback call, void *data) {
    if (callback != NULL || getenv("FAKE_CUPTI_IS_TAKEN") != NULL) return 39;
    callback = call;
    user = data;
    *subscriber = &callback;
    return 0;
}

int cuptiUnsubscribe(void *subscriber) {
    if (subscriber != &callback) return 1;
    callback = NULL;
    return 0;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t number) {
    if (subscriber != &callback || domain > 3 || number >= 1024) return 1;
    enabled[domain][number] = (unsigned char)enable;
    return 0;
}

int cuptiGetDeviceId(void *context, uint32_t *device) {
    *device = (uint32_t)(uintptr_t)context - 1;
    return 0;
}

static void tell(int domain, uint32_t number, int site, const void *arguments, int device, int result) {
    struct Data data = {site, "", arguments, &result, NULL, (void *)(uintptr_t)(device + 1), 1, NULL, 1};
    if (callback != NULL && enabled[domain][number]) callback(user, domain, number, &data);
}

static uintptr_t allocate(size_t size, int device, uint32_t runtime, uint32_t driver) {
    uintptr_t address = 0;
    struct { uintptr_t *address; size_t size; } arguments = {&address, size};
    int result = size > ((size_t)1 << 40) ? 2 : 0;
    tell(RUNTIME, runtime, ENTER, &arguments, device, 0);
    tell(DRIVER, driver, ENTER, &arguments, device, 0);
    if (result == 0) {
        address = next_address;
        next_address += size;
    }
    tell(DRIVER, driver, EXIT, &arguments, device, result);
    tell(RUNTIME, runtime, EXIT, &arguments, device, result);
    return address;
}

uintptr_t fake_allocate(size_t size, int device) { return allocate(size, device, cudaMalloc, cuMemAlloc_v2); }
uintptr_t fake_allocate_async(size_t size, int device) { return allocate(size, device, cudaMallocAsync, cuMemAllocAsync); }

uintptr_t fake_create(size_t size, int kind, int device) {
    static uintptr_t next_handle = 1;
    uintptr_t handle = 0;
    uint32_t place[8] = {1, 0, (uint32_t)kind, (uint32_t)device};
    struct { uintptr_t *handle; size_t size; const void *place; uint64_t flags; } arguments = {&handle, size, place, 0};
    tell(DRIVER, cuMemCreate, ENTER, &arguments, 0, 0);
    handle = next_handle++;
    tell(DRIVER, cuMemCreate, EXIT, &arguments, 0, 0);
    return handle;
}

void fake_free(uintptr_t address) {
    struct { uintptr_t address; } arguments = {address};
    for (int site = ENTER; site <= EXIT; site++) {
        tell(RUNTIME, cudaFree, site, &arguments, 0, 0);
        tell(DRIVER, cuMemFree_v2, site, &arguments, 0, 0);
    }
}

void fake_release(uintptr_t handle) {
    struct { uintptr_t handle; } arguments = {handle};
    for (int site = ENTER; site <= EXIT; site++) tell(DRIVER, cuMemRelease, site, &arguments, 0, 0);
}

void fake_map(uintptr_t address, size_t size, uintptr_t handle) {
    struct { uintptr_t address; size_t size, offset; uintptr_t handle; } arguments = {address, size, 0, handle};
    for (int site = ENTER; site <= EXIT; site++) tell(DRIVER, cuMemMap, site, &arguments, 0, 0);
}

void fake_unmap(uintptr_t address, size_t size) {
    struct { uintptr_t address; size_t size; } arguments = {address, size};
    for (int site = ENTER; site <= EXIT; site++) tell(DRIVER, cuMemUnmap, site, &arguments, 0, 0);
}

void fake_retain(uintptr_t handle) {
    struct { uintptr_t *handle; uintptr_t address; } arguments = {&handle, 0};
    for (int site = ENTER; site <= EXIT; site++) tell(DRIVER, cuMemRetainAllocationHandle, site, &arguments, 0, 0);
}

void fake_module(size_t size) {
    struct { uint32_t number; size_t size; const char *bytes; } module = {1, size, NULL};
    struct { void *context; void *stream; void *descriptor; } data = {NULL, NULL, &module};
    if (callback != NULL && enabled[RESOURCE][6]) callback(user, RESOURCE, 6, &data);
}

#endif
