/* starts_and_stops HOOK THREADS TIMES: starts and stops recordings while threads allocate. Checks that slots lead to the hooks while it
   records and that none does afterwards. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uintptr_t low = ~0ul, high;
static volatile int over;

static void *busy(void *unused) {
    while (!over) {
        char *block = malloc(128);
        block = realloc(block, 256);
        free(block);
        free(calloc(3, 30));
    }
    return unused;
}

static int find_hook(struct dl_phdr_info *info, size_t size, void *address) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X)) continue;
        if ((uintptr_t)address >= start && (uintptr_t)address < start + header->p_memsz) {
            low = start;
            high = start + header->p_memsz;
        }
    }
    return 0;
}

static int count_hooked(struct dl_phdr_info *info, size_t size, void *total) {
    (void)size;
    ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) entry = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!entry || strstr(info->dlpi_name, "vdso")) return 0;
    ElfW(Rela) *tables[2] = {0};
    size_t sizes[2] = {0};
    for (; entry->d_tag; entry++) {
        if (entry->d_tag == DT_RELA) tables[0] = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_RELASZ) sizes[0] = entry->d_un.d_val;
        if (entry->d_tag == DT_JMPREL) tables[1] = (void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_PLTRELSZ) sizes[1] = entry->d_un.d_val;
    }
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; tables[table] && i < sizes[table] / sizeof(ElfW(Rela)); i++) {
            unsigned sort = ELF64_R_TYPE(tables[table][i].r_info);
            if (sort != R_X86_64_JUMP_SLOT && sort != R_X86_64_GLOB_DAT) continue;
            uintptr_t value = *(uintptr_t *)(info->dlpi_addr + tables[table][i].r_offset);
            uintptr_t slot = info->dlpi_addr + tables[table][i].r_offset;
            if (value >= low && value < high && !(slot >= low && slot < high + (1 << 22) && slot > high)) ++*(long *)total;
        }
    return 0;
}

static long hooked(void) {
    long total = 0;
    dl_iterate_phdr(count_hooked, &total);
    return total;
}

int main(int count, char **arguments) {
    if (count < 4) return 1;
    int threads = atoi(arguments[2]), times = atoi(arguments[3]);
    void *hook = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!hook) return 2;
    int (*start)(uint32_t, const char *) = (int (*)(uint32_t, const char *))dlsym(hook, "stormlog_heap_start");
    int (*stop)(void) = (int (*)(void))dlsym(hook, "stormlog_heap_stop");
    int (*status)(void) = (int (*)(void))dlsym(hook, "stormlog_heap_status");
    dl_iterate_phdr(find_hook, (void *)start);
    long before = hooked();
    if (start(99, "path=/nowhere") == 0 || start(1, "nonsense") == 0 || start(1, NULL) == 0 || stop() == 0) return 3;
    pthread_t ids[64];
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, busy, NULL);
    for (int i = 0; i < times; i++) {
        if (start(1, getenv("HEAP_OPTIONS"))) return 4;
        if (status() != 1 || start(1, getenv("HEAP_OPTIONS")) == 0) return 5;
        if (hooked() <= before) return 6;
        usleep(3000);
        free(malloc(6000001));
        if (stop() || status() != 0) return 7;
        if (hooked() != before) { fprintf(stderr, "%ld slots before, %ld after\n", before, hooked()); return 8; }
        free(malloc(6000002));
    }
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return 0;
}
