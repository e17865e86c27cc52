/* Weights on their way from ranks that train to ranks that sample: in memory, unit by unit, those alone that training
 * changes, in the dtype that models compute in.
 *
 * An order says what follows: weights after some number of steps, or the end. The sender does not wait, and keeps a copy of
 * the weights until the others have them. */
#ifndef AX_OPTIM_TRAIN_HANDOVER_H
#define AX_OPTIM_TRAIN_HANDOVER_H

#include "model/model.h"
#include "parallel/fabric/team.h"

struct ax_handover_order {
    int64_t version; /* steps that the weights have made */
    int64_t end;     /* 1: nothing follows, and the run has ended with … */
    int64_t status;
};

/* What a sender keeps; zeroed: nothing is on its way. */
struct ax_handover {
    struct ax_handover_order order;
    int n_units;
    char **weights;                 /* [n_units]; NULL: nothing of the unit changes */
    struct ax_team_letter *letters; /* [receivers][1 + n_units], the order first */
    int n_letters;
};

/* To each `step`-th rank of the team from `first` on. All ranks of the model call it together; those with no receiver
 * (`first` ≥ the team's size) only gather. The weights may change afterwards. */
enum ax_status ax_handover_send(struct ax_handover *h, struct ax_team *team, int first, int step,
                                struct ax_model *m, int64_t version);
/* Says that nothing follows; all receivers have it when this returns. */
enum ax_status ax_handover_end(struct ax_team *team, int first, int step, enum ax_status st);
/* Waits until all receivers have it, and frees it; a no-op if nothing is on its way. */
enum ax_status ax_handover_finish(struct ax_handover *h, struct ax_team *team);
/* After an error: frees it. No letter may be on its way any more, as after ax_team_close. */
void ax_handover_free(struct ax_handover *h);

/* Waits for the next order of rank `from`, and reads weights that follow it into the model. */
enum ax_status ax_handover_receive(struct ax_team *team, int from, struct ax_model *m,
                                   struct ax_handover_order *order);

#endif
