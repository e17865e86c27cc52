/* Blocks of the heap between guards, for tests: with AX_CHECK_MEMORY in the environment, memory that
 * was written before or after a block ends the program when the block is freed, and what was read
 * there, or in a block after it was freed, is neither zero nor a pointer. */
#ifndef AX_BASE_MEM_GUARD_H
#define AX_BASE_MEM_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* The same answer for the life of the process. */
bool ax_mem_is_guarded(void);
/* `bytes` uninitialized bytes at a multiple of `alignment`, a power of two; NULL on failure. */
void *ax_guarded_alloc(size_t alignment, size_t bytes);
void ax_guarded_free(void *p);

#endif
