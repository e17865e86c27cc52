/* Stacked matrices that a folder has in MXFP4 (Open Compute Project 2023), as gpt-oss is published:
 * NAME_blocks U8 [E][out][in/32][16] and NAME_scales U8 [E][out][in/32]. Byte b of a block has element
 * 2b in its low half and 2b + 1 in its high half: the sign, then one of 0 .5 1 1.5 2 3 4 6, times
 * 2^(scale − 127). They are read as NAME [E][in][out] in BF16, which is exact. */
#ifndef AX_CKPT_HF_MXFP4_H
#define AX_CKPT_HF_MXFP4_H

#include "ckpt/tensors/entry.h"

struct ax_hf;

struct ax_mxfp4_source {
    const char *name; /* name of the blocks, for messages */
    const uint8_t *blocks, *scales;
    int64_t in, out; /* sizes of a matrix */
};

/* All tensors of a folder with matrices in MXFP4; they replace its files' entries. */
struct ax_hf_mxfp4 {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name; other tensors keep their files' entries */
    struct ax_mxfp4_source *sources; /* [n]; zeroed for other tensors */
};

/* Sets hf->mxfp4 and hf->entries if the folder has such matrices. AX_ERR_DATA: blocks without
 * scales, or of another shape. */
enum ax_status ax_hf_mxfp4_open(struct ax_hf *hf);
void ax_hf_mxfp4_close(struct ax_hf_mxfp4 *m); /* NULL: nothing */

#endif
