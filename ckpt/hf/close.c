#include "ckpt/hf/close.h"

enum ax_status ax_ckpt_close(struct ax_file *f, enum ax_status st) {
    struct ax_error_record first;
    ax_error_save(&first, st);
    const enum ax_status closed = ax_file_close(f);
    return st != AX_OK ? ax_error_restore(&first) : closed;
}
