#include <cstdlib>
#include <cstring>
#include <vector>
#include <unistd.h>
// Known memory: keep() leaks 40 blocks of 64 KiB, scratch() frees 100 blocks of 16 KiB at once, the peak is 1 MiB above what is kept.
static std::vector<void*> kept;
__attribute__((noinline)) void* keep(std::size_t bytes) { void* p = std::malloc(bytes); std::memset(p, 1, bytes); return p; }
__attribute__((noinline)) void scratch() {
  std::vector<void*> list;
  for (int i = 0; i < 100; i++) { void* p = std::malloc(16384); std::memset(p, 2, 16384); list.push_back(p); }
  for (void* p : list) std::free(p);
}
__attribute__((noinline)) void temporary() { for (int i = 0; i < 50; i++) { char* p = new char[3000]; p[0] = 1; asm volatile("" : : "r"(p) : "memory"); delete[] p; } }
__attribute__((noinline)) void load() { for (int i = 0; i < 40; i++) kept.push_back(keep(65536)); }
int main() {
  kept.reserve(64);
  load(); scratch(); temporary();
  usleep(30000);
  kept.push_back(keep(1 << 20));
  return (int)kept.size() & 1 ? 0 : 1;
}
