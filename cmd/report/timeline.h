/* The activity of ranks in the steps of a timeline (timeline.json, docs/run.md), as lists of
 * spans. */
#ifndef AX_CMD_REPORT_TIMELINE_H
#define AX_CMD_REPORT_TIMELINE_H

#include "base/text/json.h"

enum ax_lane_kind {
    AX_LANE_OPS, /* ops compute */
    /* transfers between ranks, from their start until they have been waited for */
    AX_LANE_TRANSFERS,
    AX_LANE_EXPOSED, /* the rank waits for a transfer */
    AX_LANE_BUBBLE,  /* waits for another pipeline stage */
    AX_LANE_KINDS
};

struct ax_lane_span {
    double begin, end; /* microseconds of the file's clock */
};
struct ax_lane {
    struct ax_lane_span *spans; /* owned; disjoint and ascending once read */
    size_t n, capacity;
};

struct ax_report_rank {
    int rank;
    struct ax_lane lanes[AX_LANE_KINDS];
};
struct ax_report_timeline {
    struct ax_report_rank *ranks; /* owned, ascending */
    int n;
    double begin, end; /* begin and end of all spans */
};

/* Adds the events of a file. AX_ERR_DATA: it has none of an op. Free, also after an error. */
enum ax_status ax_report_timeline_read(struct ax_report_timeline *t, const json_t *root);
void ax_report_timeline_free(struct ax_report_timeline *t);

/* The parts of the time from begin to end; they sum to 1. */
struct ax_rank_shares {
    double compute, exposed, bubble, nothing;
    double hidden; /* time of compute in which transfers are in flight */
};
struct ax_rank_shares ax_report_rank_shares(const struct ax_report_timeline *t, int i);

#endif
