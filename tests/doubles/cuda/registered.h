/* Memory that a rank has registered with its group, for the stand-in for NCCL. What the library leaves
 * undefined ends the program. */
#ifndef AX_TESTS_DOUBLES_CUDA_REGISTERED_H
#define AX_TESTS_DOUBLES_CUDA_REGISTERED_H

#include <stddef.h>

#include <map>

class ax_registered {
    std::map<const char *, size_t> list;

  public:
    /* False: refused. It must be a device's memory. */
    bool add(int rank, const void *base, size_t bytes);
    /* It must be there, and still be a device's memory. */
    void remove(const void *base);
    void check_empty() const;
    /* Checks memory that a transfer reads or writes: it must be inside a registered range, if any
     * is registered. */
    void touch(const void *memory, size_t bytes) const;
};

#endif
