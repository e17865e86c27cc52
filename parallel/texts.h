/* Texts between ranks, of a few megabytes at most: they travel as numbers, whose sums with zeros are exact. */
#ifndef AX_PARALLEL_TEXTS_H
#define AX_PARALLEL_TEXTS_H

#include "base/mem.h"
#include "parallel/runtime.h"

/* The numbers that hold n bytes. */
int64_t ax_text_numbers(size_t n);
/* numbers: [ax_text_numbers(n)], 0 before. */
void ax_text_pack(const char *text, size_t n, double *numbers);
void ax_text_unpack(char *text, size_t n, const double *numbers);

/* Gives all ranks of a mesh the texts of all. all: [mesh.world], empty before; the caller's, after an error, too. */
enum ax_status ax_texts_gather(struct ax_runtime *rt, const char *text, size_t n,
                               struct ax_buf *all);

#endif
