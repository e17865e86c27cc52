/* Ending a file that was written. Private to ckpt/. */
#ifndef AX_CKPT_HF_CLOSE_H
#define AX_CKPT_HF_CLOSE_H

#include "base/io.h"

/* Closes f and returns `st`; where that is AX_OK, what closing says. After an earlier error its
 * text stays the one that is reported. */
enum ax_status ax_ckpt_close(struct ax_file *f, enum ax_status st);

#endif
