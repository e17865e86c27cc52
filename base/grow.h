/* Lists that grow by one element at a time. */
#ifndef AX_BASE_GROW_H
#define AX_BASE_GROW_H

#include "base/mem.h"

/* Space for one more than n elements of `size` bytes in *(T **)inout, which has space for *cap and doubles when
 * it is full. What is behind the n elements is zero. On failure nothing has changed. */
enum ax_status ax_grow(void *inout, size_t n, size_t *cap, size_t size);

#endif
