/* An engine on several ranks. Rank 0 takes the requests; before each pass it tells the others which jobs begin and
 * which leave, and they make the same sequences of the same bodies. So all ranks decide the same of every token.
 *
 * While nothing is to be computed, ranks wait for rank 0, which meets them now and then: a rank that is lost is
 * noticed, and one that was asked to stop is heard. */
#ifndef AX_CMD_SERVE_ROUND_H
#define AX_CMD_SERVE_ROUND_H

#include "cmd/serve/engine.h"

#define AX_SERVE_BEAT_SECONDS 1.0 /* how often idle ranks meet */

/* Rank 0: meets the others, who go on waiting. */
enum ax_status ax_serve_round_beat(struct ax_serve_engine *e);
/* Rank 0, with the lock: what the others must know of the running jobs: those from number `first` on begin, and
 * those that leave. Their bodies are no longer needed. */
enum ax_status ax_serve_round_put(struct ax_serve_engine *e, uint64_t first, struct ax_buf *out);
/* Rank 0: tells them, and they begin a pass. */
enum ax_status ax_serve_round_tell(struct ax_serve_engine *e, struct ax_buf *what);
/* Another rank: waits for the next pass, begins jobs, whose sequences are appended to *last, and marks those that
 * leave. AX_ERR_PEER if rank 0 sends something else. */
enum ax_status ax_serve_round_hear(struct ax_serve_engine *e, struct ax_sequence ***last);

#endif
