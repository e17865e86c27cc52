/* The emulated device's memory: the host's, which can be touched only while commands of streams run. */
#include "tests/doubles/cuda/machine.h"
#include "tests/doubles/cuda/stream.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <map>

namespace {
std::map<void *, size_t> device_memory; /* by address */
size_t in_use;

const size_t BEHIND = 4096; /* of a block, which nobody may use */
size_t pages(size_t bytes) {
    return (bytes + 4095) / 4096 * 4096 + BEHIND;
}

/* In pages of 2 MiB if there are: what protect() costs is per page. */
const size_t LARGE = (size_t)2 << 20;
void *map_large(size_t bytes) {
    char *at = (char *)mmap(nullptr, bytes + LARGE, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return nullptr;
    char *first = (char *)(((uintptr_t)at + LARGE - 1) & -(uintptr_t)LARGE);
    if (first > at)
        munmap(at, (size_t)(first - at));
    munmap(first + bytes, (size_t)(at + LARGE - first));
    madvise(first, bytes, MADV_HUGEPAGE);
    return first;
}

/* Both ends of what cudaMalloc gives are not zero: all of an arena would take as much of the host's memory. */
const size_t SPOILED = (size_t)1 << 20;
void spoil(void *at, size_t bytes) {
    const size_t end = bytes < SPOILED ? bytes : SPOILED;
    mprotect(at, pages(bytes), PROT_READ | PROT_WRITE);
    memset(at, 0xff, end);
    memset((char *)at + bytes - end, 0xff, end);
    mprotect(at, pages(bytes), PROT_NONE);
}

/* With zeros, whole pages become fresh ones, which take nothing until they are used. */
void fill(void *p, int value, size_t bytes) {
    const size_t whole = value == 0 && (uintptr_t)p % 4096 == 0 ? bytes / 4096 * 4096 : 0;
    madvise(p, whole, MADV_DONTNEED);
    memset((char *)p + whole, value, bytes - whole);
}

/* Less what other processes have. */
size_t free_memory() {
    return ax_emulated_memory() - ax_emulated_setting("AXTRAIN_EMULATED_USED", 0) - in_use;
}
} // namespace

void ax_emulated_open_memory(bool open) {
    for (auto &m : device_memory)
        mprotect(m.first, m.second, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

bool ax_emulated_is_device(const void *at, size_t bytes) {
    ax_emulated_hold held;
    const char *first = (const char *)at;
    for (const auto &m : device_memory)
        if (first >= (char *)m.first && first + bytes <= (char *)m.first + m.second - BEHIND)
            return true;
    return false;
}

extern "C" {
cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    ax_emulated_device();
    ax_emulated_hold held;
    *available = free_memory();
    *total = ax_emulated_memory();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    AX_EMULATED_ALLOWED(nullptr);
    ax_emulated_hold held;
    void *at = bytes > free_memory() ? nullptr : map_large(pages(bytes));
    if (!at)
        return cudaErrorMemoryAllocation;
    spoil(at, bytes);
    ASAN_POISON_MEMORY_REGION((char *)at + bytes, pages(bytes) - bytes);
    device_memory[at] = pages(bytes);
    in_use += bytes;
    *p = at;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    AX_EMULATED_ALLOWED(nullptr);
    cudaDeviceSynchronize();
    ax_emulated_hold held;
    auto m = device_memory.find(p);
    if (m == device_memory.end())
        return p ? cudaErrorInvalidValue : cudaSuccess;
    ASAN_UNPOISON_MEMORY_REGION(p, m->second);
    munmap(p, m->second);
    in_use -= m->second - BEHIND;
    device_memory.erase(m);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    AX_EMULATED_ALLOWED(nullptr);
    *p = aligned_alloc(4096, pages(bytes));
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p) {
    AX_EMULATED_ALLOWED(nullptr);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    AX_EMULATED_ALLOWED(nullptr);
    ax_emulated_add(ax_emulated_legacy(), [=] { fill(p, value, bytes); });
    return cudaSuccess;
}
}
