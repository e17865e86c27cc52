#include "tests/doubles/cuda/registered.h"

#include <stdio.h>
#include <stdlib.h>

#include <atomic>

#include "tests/doubles/cuda/nccl.h"
#include "tests/doubles/cuda/stream.h"

namespace {
std::atomic<uint64_t> n_members, n_registered, n_others;
std::atomic<int> refuses{-1};

void must(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "emulated NCCL: %s\n", what);
    abort();
}
} // namespace

bool ax_registered::add(int rank, const void *base, size_t bytes) {
    must(ax_emulated_is_device(base, bytes), "what is registered is not a GPU's memory");
    n_members++; /* each registers once */
    if (rank == refuses)
        return false;
    list[(const char *)base] = bytes;
    return true;
}

void ax_registered::remove(const void *base) {
    const auto r = list.find((const char *)base);
    must(r != list.end(), "what is deregistered is not registered");
    must(ax_emulated_is_device(base, r->second), "memory is freed while it is registered");
    list.erase(r);
}

void ax_registered::check_empty() const {
    must(list.empty(), "a group is left with memory that is registered");
}

void ax_registered::touch(const void *memory, size_t bytes) const {
    const char *at = (const char *)memory;
    bool within = false;
    if (bytes == 0)
        return;
    for (const auto &r : list)
        within = within || (at >= r.first && at + bytes <= r.first + r.second);
    must(within || list.empty(), "some memory of a group's transfers is not registered");
    (within ? n_registered : n_others)++;
}

void ax_emulated_refuse(int rank) {
    refuses = rank;
}

uint64_t ax_emulated_members() {
    return n_members.exchange(0);
}

void ax_emulated_transfers(uint64_t *registered, uint64_t *others) {
    *registered = n_registered.exchange(0);
    *others = n_others.exchange(0);
}
