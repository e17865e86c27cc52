/* Who comes first: sequences that wait for a lane, and prompts that share a pass. */
#include <string.h>

#include "model/generate/generate_pass.h"

bool ax_sequence_before(const struct ax_sequence *a, const struct ax_sequence *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->place < b->place;
}

void ax_lanes_enqueue(struct ax_generator *d, struct ax_sequence *s) {
    struct ax_sequence **at = &d->work->queue.first;
    while (*at && ax_sequence_before(*at, s))
        at = &(*at)->next;
    s->next = *at;
    *at = s;
}

/* The part of a pass that the first of the prompts has, however many shorter ones come. */
#define FIRST_PART 4

static int first_prompt(const struct ax_generator *d, const int64_t *pending) {
    int first = -1;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (pending[i] > 0 &&
            (first < 0 || ax_sequence_before(d->lanes[i].seq, d->lanes[first].seq)))
            first = i;
    return first;
}

/* Of those that have been given nothing. */
static int shortest_prompt(const struct ax_generator *d, const int64_t *pending,
                           const int64_t *given) {
    int least = -1;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (pending[i] > 0 && given[i] == 0 &&
            (least < 0 || pending[i] < pending[least] ||
             (pending[i] == pending[least] &&
              ax_sequence_before(d->lanes[i].seq, d->lanes[least].seq))))
            least = i;
    return least;
}

void ax_lanes_share_pass(const struct ax_generator *d, int64_t room, const int64_t *pending,
                         int64_t *given) {
    const int first = first_prompt(d, pending);
    memset(given, 0, (size_t)d->o.n_seqs * sizeof *given);
    if (first < 0 || room <= 0)
        return;
    const int64_t part = room / FIRST_PART > 0 ? room / FIRST_PART : 1;
    given[first] = pending[first] < part ? pending[first] : part;
    room -= given[first];
    for (int i; room > 0 && (i = shortest_prompt(d, pending, given)) >= 0; room -= given[i])
        given[i] = pending[i] < room ? pending[i] : room;
    const int64_t rest = pending[first] - given[first];
    given[first] += rest < room ? rest : room;
}
