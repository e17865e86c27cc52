/* Checksums of files being written: CRC-32C of each piece of AX_SUM_PIECE bytes, so that corruption
 * can be located. They cover the data to be written, before it reaches a disk. */
#ifndef AX_CKPT_HF_CHECKSUMS_H
#define AX_CKPT_HF_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AX_SUM_PIECE ((size_t)1 << 20)

struct ax_checksums {
    uint64_t bytes;
    uint32_t *crc; /* CRC-32C of each piece; the last piece may be short */
    size_t n, cap;
};
/* Adds bytes to zero-initialized checksums; s NULL: does nothing. */
enum ax_status ax_checksums_add(struct ax_checksums *s, const void *data, size_t n);
enum ax_status ax_checksums_add_zeros(struct ax_checksums *s, size_t n);

/* The files of a folder, by relative name. */
struct ax_sum_list {
    size_t n;
    struct ax_file_sums {
        char *name;
        struct ax_checksums sums;
    } *files;
};
/* Adds a file; *out is valid until the next one is added. A NULL list gives NULL. */
enum ax_status ax_sum_list_add(struct ax_sum_list *l, const char *name, struct ax_checksums **out);
/* Combines the list's last file with file `at`, which is the same one with zeros in other places: each
 * byte that is not zero in one is zero in the other. A CRC is linear: crc(a ^ b) = crc(a) ^ crc(b) ^
 * crc(0). AX_ERR_DATA, with the file's name, if the sizes differ. */
enum ax_status ax_sum_list_merge_last(struct ax_sum_list *l, size_t at);
void ax_sum_list_free(struct ax_sum_list *l);

/* Reads every `parts`-th piece of DIR/NAME, from piece `part` on, and compares. AX_ERR_DATA names
 * the file and the first byte of the corrupted piece, or both sizes, or that it is missing. `buffer` is from
 * ax_alloc_direct with AX_SUM_PIECE bytes. */
enum ax_status ax_file_sums_check(const char *dir, const struct ax_file_sums *f, int part,
                                  int parts, void *buffer);

#endif
