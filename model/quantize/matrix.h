/* A matrix of a folder in a number format: its codes and scales, while they are written. */
#ifndef AX_MODEL_QUANTIZE_MATRIX_H
#define AX_MODEL_QUANTIZE_MATRIX_H

#include "ckpt/tensors/entry.h"
#include "kernels/queue.h"
#include "kernels/quant/scheme.h"

/* Memory that one matrix after the other has, as taking new pages each time costs as much as rounding. */
struct ax_quantize_room {
    int64_t numel, blocks; /* sizes of the largest matrix so far */
    float *x, *scale;
    unsigned char *codes, *bytes;
};
void ax_quantize_room_free(struct ax_quantize_room *r); /* safe on a zeroed one */

struct ax_quantized_matrix {
    const struct ax_st_entry *e; /* [rows][cols] */
    struct ax_number_format format;
    int64_t rows, cols, block;     /* block: in elements */
    float *x, *scale;              /* [rows][cols], [blocks]; NULL before and after */
    unsigned char *codes, *bytes;  /* one per element; scales that are bytes */
    float outer;                   /* the tensor's global scale */
    struct ax_quantize_room *room; /* borrowed; NULL: memory of its own */
};
/* Prepares to quantize an entry that is a matrix of floats. */
struct ax_quantized_matrix ax_quantized_matrix_of(const struct ax_st_entry *e,
                                                  const struct ax_number_format *f);
/* Reads x and rounds it to nearest. */
enum ax_status ax_quantized_matrix_make(struct ax_quantized_matrix *m, struct ax_queue *q);
/* The values of its codes, F32 [rows][cols]. */
enum ax_status ax_quantized_matrix_values(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                          float *out);
/* *squares += Σ x², *errors += Σ (value − x)². */
enum ax_status ax_quantized_matrix_errors(const struct ax_quantized_matrix *m, struct ax_queue *q,
                                          double *squares, double *errors);
void ax_quantized_matrix_end(struct ax_quantized_matrix *m);

#endif
