/* Private to the saver: the sources and destinations of one save. */
#ifndef AX_CKPT_STATE_SAVER_WORK_H
#define AX_CKPT_STATE_SAVER_WORK_H

#include "ckpt/state/saver.h"

/* A tensor to write: `fill` reads it piece by piece, and count_off follows the last one. */
struct ax_save_source {
    struct ax_saver *saver;
    struct ax_live from; /* live memory, or the unit's copy */
    struct ax_delta delta;
    enum ax_dtype wanted;
    bool copied;
    uint64_t ticket; /* ticket of its copy to the stage; 0: none */
    int64_t read;    /* elements read so far, of `numel` */
    int64_t numel;
    int unit;
};

struct ax_saver_work {
    struct ax_saver *saver;
    struct ax_save_job job;
    char *output_dir, *dir;
    struct ax_st_output *tensors; /* weights, then state */
    struct ax_state_part *saved;  /* [n_saved]: parts of the state that this rank saves */
    int n_saved;
    char **keys; /* [n_saved] */
    size_t n_sources;
    struct ax_save_source *sources;
    struct ax_st_part *parts; /* [n_sources] */
    struct ax_save_copy {
        char *data; /* owned */
        int left;   /* sources still to be read from it */
    } *copies;      /* [n_units] */
    /* the source that the writer is reading, without the lock */
    const struct ax_save_source *reading;
    bool ended;
    enum ax_status (*fill)(void *source, int64_t first, int64_t n, void *out);
};

/* Lists the tensors to save, and counts them as pending; `fill` provides a source's elements. On an
 * error the caller frees *w. */
enum ax_status ax_saver_work_make(struct ax_saver_work *w,
                                  enum ax_status (*fill)(void *source, int64_t first, int64_t n,
                                                         void *out));
void ax_saver_work_free(struct ax_saver_work *w); /* NULL is fine */

#endif
