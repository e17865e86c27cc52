/* A step: executes the action table (parallel/schedule/schedule.h), one small function per kind of action, and
 * reads the result. The way of a step of a run, in order, for micro-batch m and unit u:
 *
 *   fill_step              optim/train/train.c: the loader's sequences, or sampled completions, become micro-batches
 *   ax_step_restart_if_due ReLoRA merges its adapter into the base, and begins a new one
 *   ax_train_estimate_kl   KTO's estimate; ax_train_value_step: PPO's value model takes a step of its own
 *   ax_step_begin          the teacher reads the micro-batches; weights are summed over ranks (step_weigh); actions:
 *     BEGIN m              m takes a slot for its activations
 *     RECEIVE_INPUT m      from the previous pipeline stage, on all stages but the first
 *     GATHER u             starts to unshard u's parameters, while the unit before computes
 *     FORWARD u m          waits for them; model/pass.c computes the unit. The head computes the loss,
 *                          and if that is linear in the log-probs, its gradient
 *     SEND_OUTPUT m        to the next stage, from which RECEIVE_GRADIENT brings the gradient
 *     BACKWARD u m         the same in reverse order of units, recomputing dropped tensors; gradients
 *                          add up in grad_full. If halved, WEIGHTS u m computes those of matrices later
 *     SEND_GRADIENT m      to the previous stage. TRAVEL lets messages go, WAIT waits for one
 *     RELEASE u            u's parameters may be overwritten
 *     REDUCE u m           starts the sum over shards; the sum before it continues over replicas
 *     END m                m gives its slot back
 *     TIE u                the two copies of a tied matrix add up their gradients
 *     NORM u               finishes the sums; each element's square is added on one rank
 *   clip_step              CLIP sums norm, loss and measures over ranks; the device decides whether to skip
 *   ax_step_answer         the host reads the result
 *   ax_train_watch_step    optim/train/watch.c: a loss that is NaN or far off names its records, and may end the run
 *   update_step            UPDATE u waits for a save that still reads u; then optimizer and router bias
 *   end_step               optim/train/train.c: counts the step, and reports it
 *   after_step             optim/train/train.c: evaluates and saves if it is time
 *
 * On a device that works late the update is enqueued before the result is read: optim/train/train.c says how. */
#include "optim/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/recording.h"
#include "model/boundary.h"
#include "model/parts/index_training.h"

/* ---- the loads of experts ---- */

/* The passes of a step count how many tokens each expert got (ax_model.expert_loads). The counts are
 * summed once, over ranks, and read by the routers' biases and, with the step's result, by metrics
 * (expert_balance.h). */

/* Zeroes the loads; does nothing in a model without experts. */
static enum ax_status expert_loads_begin(struct ax_step *s) {
    const struct ax_tensor *loads = &s->model.expert_loads;
    return loads->data ? ax_run_fill(s->rt->q, &(struct ax_fill){.dst = *loads}) : AX_OK;
}

struct measure_loads {
    int64_t n_layers, n_experts;
};

/* False: no expert of the layer got a token. */
static bool measure_layer(const double *loads, int64_t n, double *violation, double *entropy) {
    double sum = 0, largest = 0, h = 0;
    for (int64_t e = 0; e < n; e++) {
        sum += loads[e];
        largest = loads[e] > largest ? loads[e] : largest;
    }
    if (!(sum > 0))
        return false;
    for (int64_t e = 0; e < n; e++)
        h -= loads[e] > 0 ? loads[e] / sum * log(loads[e] / sum) : 0;
    *violation = largest * (double)n / sum - 1;
    *entropy = n > 1 ? h / log((double)n) : 1;
    return true;
}

static enum ax_status measure_loads(struct ax_queue *q, const void *args, void *const *at) {
    const struct measure_loads *m = args;
    const double *loads = at[0]; /* [n_layers][n_experts] */
    struct ax_expert_balance *b = at[1];
    int layers = 0;
    (void)q;
    *b = (struct ax_expert_balance){.violation = NAN, .entropy = NAN};
    for (int i = 0; i < AX_BALANCE_LAYERS; i++)
        b->layers[i] = NAN;
    for (int64_t i = 0; i < m->n_layers && i < AX_BALANCE_LAYERS; i++) {
        double violation, entropy;
        if (!measure_layer(loads + i * m->n_experts, m->n_experts, &violation, &entropy))
            continue;
        b->layers[i] = (float)violation;
        b->violation = layers == 0 ? violation : fmax(b->violation, violation);
        b->entropy = layers == 0 ? entropy : b->entropy + entropy;
        layers++;
    }
    if (layers > 0)
        b->entropy /= layers;
    return AX_OK;
}

/* Ranks of tp and of the data have other rows, stages other layers. */
static enum ax_status expert_loads_sum(struct ax_step *s) {
    const struct ax_tensor *loads = &s->model.expert_loads;
    static const enum ax_role roles[] = {AX_ROLE_LOSS, AX_ROLE_TP, AX_ROLE_PP};
    if (!loads->data)
        return AX_OK;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        AX_TRY(ax_comm_sum(&s->rt->comms[roles[i]], s->rt->q, AX_F64, loads->data,
                           ax_tensor_numel(loads)));
    const struct measure_loads m = {loads->shape[0], loads->shape[1]};
    const struct ax_view views[] = {ax_view_of(loads, AX_VIEW_READ),
                                    {s->balance, sizeof *s->balance, AX_VIEW_WRITE}};
    return ax_queue_call(s->rt->q, measure_loads, &m, sizeof m, views, 2);
}

/* ---- the routers' biases ---- */

/* Balanced experts without a loss (Wang et al. 2024, DeepSeek-V3): the router's bias, which chooses
 * experts and does not weigh them, follows their loads. After each step, for expert e of a layer
 *
 *   bias[e] += speed·sign(mean load − load[e])
 *
 * where a load is the number of tokens that the expert got in the step, of all micro-batches and
 * ranks. A step that is skipped changes nothing. */

/* Elements [first, first + n) of a layer's bias, which are this rank's. */
struct bias_change {
    int64_t n_experts, first, n;
    enum ax_dtype dtype;
    double speed;
};

static enum ax_status change_bias(struct ax_queue *q, const void *args, void *const *at) {
    const struct bias_change *c = args;
    const struct ax_step_scalars *scalars = at[0];
    const double *loads = at[1]; /* [n_experts] */
    void *bias = at[2];          /* [n] */
    double mean = 0;
    (void)q;
    for (int64_t e = 0; e < c->n_experts; e++)
        mean += loads[e] / (double)c->n_experts;
    for (int64_t i = 0; i < c->n && !scalars->skip; i++) {
        const double load = loads[c->first + i];
        const double sign = load < mean ? 1 : load > mean ? -1 : 0;
        const double moved = ax_load(c->dtype, bias, i) + c->speed * sign;
        ax_store(c->dtype, bias, i, (double)(float)moved); /* as it is saved */
    }
    return AX_OK;
}

/* Updates the bias of a unit's router from the loads of the step. */
static enum ax_status router_bias_update(struct ax_step *s, int unit) {
    const struct ax_model *m = &s->model;
    if (s->o.router_bias_speed == 0 || unit == 0 || unit > m->arch.n_layers)
        return AX_OK;
    const struct ax_layer *l = &m->layers[unit - 1];
    const struct ax_param *p = l->moe.bias;
    if (!p)
        return AX_OK;
    const struct ax_unit *u = &m->units[unit];
    const struct ax_segment *seg = &u->segments[p->segment];
    const struct ax_tensor loads = ax_tensor_rows(&m->expert_loads, l->index, 1);
    struct bias_change c = {
        .n_experts = m->arch.moe.n_experts, .dtype = seg->compute, .speed = s->o.router_bias_speed};
    int64_t at;
    ax_unit_owned(u, &s->rt->mesh, p, &c.first, &c.n, &at);
    const struct ax_tensor bias = ax_tensor_rows(&seg->shard, c.n > 0 ? at : 0, c.n);
    const struct ax_view views[] = {{s->scalars, sizeof *s->scalars, AX_VIEW_READ},
                                    ax_view_of(&loads, AX_VIEW_READ),
                                    ax_view_of(&bias, AX_VIEW_UPDATE)};
    return ax_queue_call(s->rt->q, change_bias, &c, sizeof c, views, 3);
}

/* ---- the weight by which a step's loss is divided, over all micro-batches and data ranks ---- */

static double weight_of_batch(const struct ax_batch *b, enum ax_per per) {
    const int64_t pairs = b->n_docs / 2;
    return per == AX_PER_TOKEN      ? b->weight_total
           : per == AX_PER_DOCUMENT ? (double)b->n_docs
                                    : (double)pairs;
}

/* Documents without any token to train on are no step. */
static enum ax_status need_tokens(struct ax_queue *q, const void *args, void *const *at) {
    struct ax_step_scalars *scalars = at[0];
    const struct ax_step_measures *measures = at[1];
    (void)q;
    (void)args;
    if (measures->tokens == 0)
        scalars->weight = 0;
    return AX_OK;
}

/* Over the data ranks, of doubles in device memory. */
static enum ax_status sum_batch_ranks(struct ax_step *s, double AX_DEVICE *value, int64_t n) {
    return ax_comm_sum(&s->rt->comms[AX_ROLE_BATCH], s->rt->q, AX_F64, value, n);
}

static bool trains_indexers(const struct ax_step *s) {
    return s->o.model.indexers != AX_INDEXERS_FROZEN;
}

/* Sets the batches' weights and the step's, and clears the objective's measures. Call it before any
 * compute. */
static enum ax_status step_weigh(struct ax_step *s) {
    const enum ax_per per = s->o.objective->per;
    struct ax_step_measures none = {.kl = s->kl,
                                    .entropy_cut = s->entropy_cut,
                                    .entropy_tokens =
                                        s->entropy_cut > 0 ? (double)s->entropy_tokens : 0};
    const struct ax_view views[] = {{s->scalars, sizeof *s->scalars, AX_VIEW_UPDATE},
                                    {s->measures, sizeof *s->measures, AX_VIEW_READ}};
    /* weight, documents and tokens of the step */
    const int64_t counts = trains_indexers(s) ? 3 : s->o.sequence_coef > 0 ? 2 : 1;
    double count[] = {s->absent, 0, 0};
    for (int m = 0; m < s->o.n_microbatches; m++) {
        const struct ax_batch *b = &s->batches[m];
        s->batches[m].loss_weight = weight_of_batch(b, per);
        count[0] += b->loss_weight;
        count[1] += (double)b->n_docs;
        count[2] += (double)b->n_tokens;
        none.tokens += (double)(per == AX_PER_PAIR ? b->side_trained[0] : b->trained);
        none.entropy_tokens += s->entropy_cut > 0 ? 0 : (double)b->trained;
    }
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->weight, count, (size_t)counts * sizeof *count));
    AX_TRY(sum_batch_ranks(s, &s->scalars->weight, counts));
    if (!s->o.objective->measures)
        return AX_OK;
    AX_TRY(ax_queue_write(s->rt->q, s->measures, &none, sizeof none));
    AX_TRY(sum_batch_ranks(s, &s->measures->tokens, 2));
    return per == AX_PER_DOCUMENT ? ax_queue_call(s->rt->q, need_tokens, NULL, 0, views, 2) : AX_OK;
}

/* ---- actions ---- */

static struct ax_pass *pass_of(const struct ax_step *s, const struct ax_action *a) {
    return &s->passes[a->chunk * s->o.n_microbatches + a->microbatch];
}

static enum ax_status act_begin(struct ax_step *s, const struct ax_action *a) {
    pass_of(s, a)->slot = &s->slots[a->slot];
    return ax_pass_begin(pass_of(s, a));
}

static enum ax_status act_end(struct ax_step *s, const struct ax_action *a) {
    ax_pass_end(pass_of(s, a));
    return AX_OK;
}

/* True of the unit that needs the teacher's head, too. */
static bool unit_compares(const struct ax_step *s, int unit) {
    return s->taught && unit == s->model.n_units - 1;
}

static enum ax_status act_gather(struct ax_step *s, const struct ax_action *a) {
    if (unit_compares(s, a->unit))
        AX_TRY(ax_teacher_gather_head(&s->teacher));
    AX_TRY(ax_model_start_gather(&s->model, a->unit, s->o.model.sharding.coded));
    return s->o.model.sharding.prefetch ? AX_OK : ax_model_arrive(&s->model, a->unit);
}

static enum ax_status act_release(struct ax_step *s, const struct ax_action *a) {
    ax_model_release(&s->model, a->unit);
    if (unit_compares(s, a->unit))
        ax_teacher_release_head(&s->teacher);
    return AX_OK;
}

/* Finishes the sum in flight if what a unit is about to compute writes its gradients, or into their
 * pool buffer. Weights' halves need none: gradients in halves are summed once, after the last. */
static enum ax_status finish_sum_before(struct ax_step *s, int unit) {
    const struct ax_unit *u = &s->model.units[unit], *summed = s->reduction.unit;
    const int also = ax_model_unit_needs(&s->model, unit);
    const bool shares = summed && summed->buffer >= 0 && summed->buffer == u->buffer;
    if (summed == u || shares || (also >= 0 && summed == &s->model.units[also]))
        return ax_unit_finish_reduce(&s->reduction, s->rt);
    return AX_OK;
}

/* The head computes its gradients forward. */
static enum ax_status act_forward(struct ax_step *s, const struct ax_action *a) {
    AX_TRY(ax_model_arrive(&s->model, a->unit));
    if (a->unit == s->model.n_units - 1)
        AX_TRY(finish_sum_before(s, a->unit));
    return ax_pass_forward(pass_of(s, a), a->unit);
}

static const struct ax_chunk *chunk_of(const struct ax_step *s, const struct ax_action *a) {
    return &s->model.chunks.list[a->chunk];
}

/* What of the micro-batch crosses the boundary before a unit, in a slot or as shapes. */
static struct ax_message crossing(const struct ax_step *s, const struct ax_action *a,
                                  enum ax_crossing what, int unit, const struct ax_slot *slot) {
    return ax_boundary(&s->model, what, unit, &s->batches[a->microbatch], slot);
}

/* The gradient for the previous stage. */
static struct ax_message outgoing_gradient(const struct ax_step *s, const struct ax_action *a) {
    const struct ax_message shape = crossing(s, a, AX_CROSS_GRADIENT, chunk_of(s, a)->first, NULL);
    return ax_message_at(&shape, s->outbox);
}

/* The outbox keeps it, because the pass's slot may be reused before it is sent. */
static enum ax_status act_backward(struct ax_step *s, const struct ax_action *a) {
    AX_TRY(ax_model_arrive(&s->model, a->unit));
    AX_TRY(finish_sum_before(s, a->unit));
    AX_TRY(ax_pass_backward(pass_of(s, a), a->unit));
    if (a->unit == 0 || a->unit != chunk_of(s, a)->first)
        return AX_OK;
    const struct ax_message out = outgoing_gradient(s, a),
                            made = crossing(s, a, AX_CROSS_GRADIENT, a->unit, &s->slots[a->slot]);
    return ax_message_copy(s->rt->q, &out, &made);
}

static enum ax_status act_weights(struct ax_step *s, const struct ax_action *a) {
    return ax_pass_weights(pass_of(s, a), a->unit);
}

static struct ax_message_tickets *tickets_of(const struct ax_step *s, const struct ax_action *a,
                                             enum ax_action_kind message) {
    const int pass = a->chunk * s->o.n_microbatches + a->microbatch;
    return &s->messages[pass].tickets[message - AX_ACT_SEND_OUTPUT];
}

static enum ax_status act_send_output(struct ax_step *s, const struct ax_action *a) {
    const struct ax_message out =
        crossing(s, a, AX_CROSS_OUTPUT, chunk_of(s, a)->end, &s->slots[a->slot]);
    return ax_pipe_send(s->rt, ax_pipe_peer(s->rt, 1), &out, tickets_of(s, a, a->kind));
}

static struct ax_message incoming(const struct ax_step *s, const struct ax_action *a) {
    const struct ax_message shape = crossing(s, a, AX_CROSS_OUTPUT, chunk_of(s, a)->first, NULL);
    return ax_message_at(&shape, s->inboxes[a->inbox]);
}

static enum ax_status act_receive_input(struct ax_step *s, const struct ax_action *a) {
    const struct ax_message in = incoming(s, a);
    return ax_pipe_receive(s->rt, ax_pipe_peer(s->rt, -1), &in, tickets_of(s, a, a->kind));
}

static enum ax_status act_send_gradient(struct ax_step *s, const struct ax_action *a) {
    const struct ax_message out = outgoing_gradient(s, a);
    return ax_pipe_send(s->rt, ax_pipe_peer(s->rt, -1), &out, tickets_of(s, a, a->kind));
}

static enum ax_status act_receive_gradient(struct ax_step *s, const struct ax_action *a) {
    const struct ax_message in =
        crossing(s, a, AX_CROSS_GRADIENT, chunk_of(s, a)->end, &s->slots[a->slot]);
    return ax_pipe_receive(s->rt, ax_pipe_peer(s->rt, 1), &in, tickets_of(s, a, a->kind));
}

static enum ax_status act_travel(struct ax_step *s, const struct ax_action *a) {
    (void)a;
    return ax_pipe_travel(s->rt);
}

static enum ax_status act_wait(struct ax_step *s, const struct ax_action *a) {
    AX_TRY(ax_pipe_wait(s->rt, tickets_of(s, a, a->message)));
    if (a->message != AX_ACT_RECEIVE_INPUT)
        return AX_OK;
    const struct ax_message in = incoming(s, a),
                            to = crossing(s, a, AX_CROSS_OUTPUT, chunk_of(s, a)->first,
                                          &s->slots[a->slot]);
    return ax_message_copy(s->rt->q, &to, &in);
}

static enum ax_status act_reduce(struct ax_step *s, const struct ax_action *a) {
    AX_TRY(ax_unit_pass_reduce(&s->reduction, &s->second, s->rt));
    AX_TRY(ax_unit_start_reduce(&s->reduction, &s->model.units[a->unit], s->rt, a->last));
    return s->o.model.sharding.prefetch ? AX_OK
                                        : ax_unit_finish_reduces(&s->reduction, &s->second, s->rt);
}

/* Both copies of a tied matrix get the sum of their gradients (a + b = b + a: they stay equal). */
static enum ax_status act_tie(struct ax_step *s, const struct ax_action *a) {
    const struct ax_unit *unit = &s->model.units[a->unit];
    const int peer = ax_pipe_peer(s->rt, ax_chunks_have(&s->model.chunks, 0) ? -1 : 1);
    struct ax_stack *scratch = &s->rt->arena.scratch;
    AX_TRY(ax_unit_finish_reduces(&s->reduction, &s->second, s->rt));
    for (int k = 0; k < unit->n_segments; k++) {
        const struct ax_tensor *grad = &unit->segments[k].grad;
        if (!grad->data || unit->segments[k].uncopied)
            continue;
        const size_t mark = ax_stack_mark(scratch);
        struct ax_tensor other = *grad;
        other.data = ax_stack_push(scratch, "gradient of the tied copy", ax_tensor_bytes(grad));
        const struct ax_message out = {.n = 1, .parts = {*grad}}, in = {.n = 1, .parts = {other}};
        struct ax_message_tickets sent, received;
        AX_TRY(ax_pipe_send(s->rt, peer, &out, &sent));
        AX_TRY(ax_pipe_receive(s->rt, peer, &in, &received));
        AX_TRY(ax_pipe_wait(s->rt, &received));
        AX_TRY(ax_pipe_wait(s->rt, &sent));
        AX_TRY(ax_run_add(s->rt->q, &(struct ax_add){*grad, other, 1}));
        ax_stack_release(scratch, mark);
    }
    return AX_OK;
}

/* Σ over the ranks of a role of doubles in device memory. */
static enum ax_status sum_doubles(struct ax_step *s, enum ax_role role, double AX_DEVICE *value,
                                  int64_t n) {
    return ax_comm_sum(&s->rt->comms[role], s->rt->q, AX_F64, value, n);
}

static enum ax_status sum_double(struct ax_step *s, enum ax_role role, double AX_DEVICE *value) {
    return sum_doubles(s, role, value, 1);
}

/* Only what this rank owns enters the norm; the table omits the copy of a tied matrix. */
static enum ax_status act_norm(struct ax_step *s, const struct ax_action *a) {
    const struct ax_unit *unit = &s->model.units[a->unit];
    AX_TRY(ax_unit_finish_reduces(&s->reduction, &s->second, s->rt));
    for (int k = 0; k < unit->n_segments; k++) {
        const struct ax_segment *seg = &unit->segments[k];
        if (seg->trainable && ax_segment_owned(seg, &s->rt->mesh))
            AX_TRY(ax_run_sumsq(s->rt->q, &(struct ax_sumsq){seg->grad, s->scalars}));
    }
    return AX_OK;
}

/* Every rank has the part of its rows and layers. */
static enum ax_status sum_of_rows(struct ax_step *s, double AX_DEVICE *loss) {
    static const enum ax_role roles[] = {AX_ROLE_LOSS, AX_ROLE_TP, AX_ROLE_PP};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        AX_TRY(sum_double(s, roles[i], loss));
    return AX_OK;
}

static enum ax_status sum_mtp_loss(struct ax_step *s) {
    static const enum ax_role roles[] = {AX_ROLE_LOSS, AX_ROLE_PP};
    for (size_t i = 0; s->o.mtp_coef > 0 && i < sizeof roles / sizeof *roles; i++)
        AX_TRY(sum_double(s, roles[i], &s->ahead->loss));
    return AX_OK;
}

/* A loss that is not finite skips the update: the gradient may still be finite (token of
 * probability 0). */
static enum ax_status act_clip(struct ax_step *s, const struct ax_action *a) {
    (void)a;
    AX_TRY(sum_double(s, AX_ROLE_WORLD, &s->scalars->sumsq));
    AX_TRY(sum_double(s, AX_ROLE_LOSS, &s->scalars->loss));
    AX_TRY(sum_double(s, AX_ROLE_PP, &s->scalars->loss));
    AX_TRY(sum_double(s, AX_ROLE_LOSS, &s->scalars->aux_loss));
    if (s->o.sequence_coef > 0)
        AX_TRY(sum_of_rows(s, &s->scalars->sequence_loss));
    if (trains_indexers(s))
        AX_TRY(sum_of_rows(s, &s->scalars->index_loss));
    AX_TRY(sum_mtp_loss(s));
    AX_TRY(expert_loads_sum(s));
    if (s->o.objective->measures) {
        AX_TRY(sum_doubles(s, AX_ROLE_LOSS, s->measures->sum, 2 * AX_MEASURES));
        AX_TRY(sum_doubles(s, AX_ROLE_PP, s->measures->sum, 2 * AX_MEASURES));
    }
    return ax_run_clip(s->rt->q, &(struct ax_clip){s->scalars});
}

static enum ax_status act_update(struct ax_step *s, const struct ax_action *a) {
    if (s->before_update)
        s->before_update(s->before_update_ctx, a->unit);
    for (int i = 0; i < s->model.n_params; i++)
        if (s->model.params[i].unit == a->unit)
            AX_TRY(
                ax_param_update(&s->model, i, &s->states[i], s->o.optimizer, &s->o.opt,
                                s->scalars + ax_lr_group_of(&s->o.lr_groups, &s->model.params[i])));
    return router_bias_update(s, a->unit);
}

static const struct {
    enum ax_status (*run)(struct ax_step *s, const struct ax_action *a);
    enum ax_step_phase phase;
    bool of_tokens; /* its collectives are as long as the micro-batch */
} handlers[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = {act_begin, AX_TIME_FORWARD},
    [AX_ACT_GATHER] = {act_gather, AX_TIME_FORWARD},
    [AX_ACT_FORWARD] = {act_forward, AX_TIME_FORWARD, true},
    [AX_ACT_BACKWARD] = {act_backward, AX_TIME_BACKWARD, true},
    [AX_ACT_WEIGHTS] = {act_weights, AX_TIME_BACKWARD, true},
    [AX_ACT_RELEASE] = {act_release, AX_TIME_BACKWARD},
    [AX_ACT_END] = {act_end, AX_TIME_BACKWARD},
    [AX_ACT_SEND_OUTPUT] = {act_send_output, AX_TIME_FORWARD},
    [AX_ACT_RECEIVE_INPUT] = {act_receive_input, AX_TIME_FORWARD},
    [AX_ACT_SEND_GRADIENT] = {act_send_gradient, AX_TIME_BACKWARD},
    [AX_ACT_RECEIVE_GRADIENT] = {act_receive_gradient, AX_TIME_BACKWARD},
    [AX_ACT_TRAVEL] = {act_travel, AX_TIME_BACKWARD},
    [AX_ACT_WAIT] = {act_wait, AX_TIME_BACKWARD},
    [AX_ACT_REDUCE] = {act_reduce, AX_TIME_BACKWARD},
    [AX_ACT_TIE] = {act_tie, AX_TIME_BACKWARD},
    [AX_ACT_NORM] = {act_norm, AX_TIME_OPTIMIZER},
    [AX_ACT_CLIP] = {act_clip, AX_TIME_OPTIMIZER},
    [AX_ACT_UPDATE] = {act_update, AX_TIME_OPTIMIZER},
};

/* Runs actions [first, end), and has the device time their phases. */
static enum ax_status run_actions(struct ax_step *s, int first, int end) {
    AX_TRY(ax_queue_time(s->rt->q, s->times, -1));
    for (int i = first; i < end; i++) {
        const struct ax_action *a = &s->schedule.actions[i];
        const enum ax_step_phase phase = handlers[a->kind].phase;
        if (s->rt->q->recording)
            s->rt->q->recording->unit = handlers[a->kind].of_tokens ? a->unit + 1 : 0;
        if (handlers[a->kind].of_tokens)
            ax_contract_scale(&s->rt->contracts, s->batches[a->microbatch].T,
                              s->batches[a->microbatch].cap);
        AX_TRY(handlers[a->kind].run(s, a));
        ax_contract_scale(&s->rt->contracts, 1, 1);
        if (i + 1 == end || handlers[a[1].kind].phase != phase)
            AX_TRY(ax_queue_time(s->rt->q, s->times, (int)phase));
    }
    return AX_OK;
}

/* The teacher reads the micro-batches before the action table begins, whatever its order. */
static enum ax_status read_teacher(struct ax_step *s) {
    const enum ax_phase phase = s->rt->arena.phase;
    if (!s->taught)
        return AX_OK;
    ax_arena_enter(&s->rt->arena, AX_PHASE_EVAL);
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(ax_teacher_read(&s->taught[m], &s->batches[m]));
    ax_arena_enter(&s->rt->arena, phase);
    return AX_OK;
}

static enum ax_status copy_scalars(struct ax_step *s, struct ax_step_scalars AX_DEVICE *to) {
    const int64_t words = (int64_t)(sizeof *to / sizeof(int32_t));
    return ax_run_copy(s->rt->q, &(struct ax_copy){ax_tensor_1d(AX_I32, to, words),
                                                   ax_tensor_1d(AX_I32, s->scalars, words)});
}

/* The step's own list of collectives: beside a policy's, that of its value model may be another. */
static enum ax_status enter(struct ax_step *s, const char *what) {
    char name[2 * AX_CONTRACT_NAME];
    snprintf(name, sizeof name, "%s of %s", what, s->contract);
    return ax_contract_enter(&s->rt->contracts, name);
}

enum ax_status ax_step_begin(struct ax_step *s) {
    const struct ax_times none = {0};
    s->model.quant.on = s->count >= s->o.qat_after;
    ax_fake_quant_step(&s->model.quant);
    AX_TRY(ax_queue_write(s->rt->q, s->times, &none, sizeof none));
    AX_TRY(read_teacher(s));
    AX_TRY(enter(s, "gradients"));
    AX_TRY(step_weigh(s));
    AX_TRY(ax_run_begin_step(s->rt->q, &(struct ax_begin_step){s->scalars, s->begun}));
    s->begun = true;
    if (s->o.mtp_coef > 0)
        AX_TRY(copy_scalars(s, s->ahead));
    AX_TRY(expert_loads_begin(s));
    AX_TRY(run_actions(s, 0, s->schedule.first_update));
    return ax_contract_leave(&s->rt->contracts, s->rt->comms);
}

/* Op clip with its sums over ranks: the device decides whether the step changes the weights. */
static enum ax_status clip_step(struct ax_step *s, double hold_above) {
    s->known_skipped = s->counted = false;
    AX_TRY(enter(s, "clip"));
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->hold_above, &hold_above, sizeof hold_above));
    AX_TRY(run_actions(s, s->schedule.first_update, s->schedule.first_update + 1));
    return ax_contract_leave(&s->rt->contracts, s->rt->comms);
}

/* Sets the step's learning rate, and what the other groups of parameters see. */
static enum ax_status set_rates(struct ax_step *s, double lr) {
    struct ax_queue *q = s->rt->q;
    AX_TRY(ax_queue_write(q, &s->scalars->lr, &lr, sizeof lr));
    for (int g = 1; g < ax_lr_group_count(&s->o.lr_groups); g++) {
        const double own = lr * s->o.lr_groups.factor[g];
        AX_TRY(copy_scalars(s, s->scalars + g));
        AX_TRY(ax_queue_write(q, &s->scalars[g].lr, &own, sizeof own));
    }
    return AX_OK;
}

static enum ax_status update_step(struct ax_step *s, double lr) {
    AX_TRY(set_rates(s, lr));
    AX_TRY(run_actions(s, s->schedule.first_update + 1, s->schedule.n));
    AX_TRY(ax_state_stream_end(&s->stream, s->rt->q));
    ax_step_drop(s);
    s->begun = false;
    s->counted = !s->known_skipped;
    s->count += s->counted;
    return AX_OK;
}

/* ---- the result ---- */

static const char *const phase_names[AX_TIME_COUNT] = {"forward", "backward", "optimizer"};
_Static_assert((int)AX_TIME_COUNT <= AX_TIMES, "a device has too few sums of times");

const char *ax_step_phase_name(enum ax_step_phase phase) {
    return phase_names[phase];
}

/* The device's memory of a step's result, from `balance`. */
struct answer {
    struct ax_expert_balance balance;
    struct ax_step_measures measures;
    struct ax_times times;
    struct ax_step_scalars ahead, now;
};
_Static_assert(sizeof(struct answer) <= AX_QUEUE_LATE_BYTES, "a queue has too little memory");

static enum ax_status ask_result(struct ax_step *s) {
    const struct answer cap = {.now = {.weight = 1}}; /* while planning */
    return ax_queue_read_later(s->rt->q, s->balance, sizeof cap, &cap, &s->ticket);
}

/* The update that was counted did not happen. */
static void uncount_step(struct ax_step *s) {
    s->counted = false;
    s->count--;
}

static double mean_of_indexers(const struct ax_step *s, double sum) {
    int n = 0;
    for (int64_t i = 0; i < s->model.arch.n_layers; i++)
        n += ax_index_trains(&s->model.layers[i]);
    return n > 0 ? sum / n : 0;
}

enum ax_status ax_step_answer(struct ax_step *s, struct ax_step_result *out) {
    struct answer a;
    AX_TRY(ax_queue_settle(s->rt->q, s->ticket, &a, sizeof a));
    *out = (struct ax_step_result){.loss = a.now.loss,
                                   .grad_norm = a.now.grad_norm,
                                   .lr = a.now.lr,
                                   .aux_loss = a.now.aux_loss,
                                   .sequence_loss = a.now.sequence_loss,
                                   .index_loss = mean_of_indexers(s, a.now.index_loss),
                                   .mtp_loss = s->o.mtp_coef > 0 ? a.ahead.loss : 0,
                                   .weight_total = a.now.weight,
                                   .experts = a.balance,
                                   .skipped = a.now.skip != 0};
    memcpy(out->seconds, a.times.seconds, sizeof out->seconds);
    ax_measures_mean(s->o.objective->documents, &a.measures, out->measures);
    s->known_skipped = out->skipped;
    if (out->skipped && s->counted)
        uncount_step(s);
    return AX_OK;
}

enum ax_status ax_step_decide(struct ax_step *s, struct ax_step_result *out) {
    AX_TRY(clip_step(s, INFINITY));
    AX_TRY(ask_result(s));
    return ax_step_answer(s, out);
}

/* Nothing is asked of the device after it, so the time of the update is the host's. */
enum ax_status ax_step_update(struct ax_step *s, double lr, struct ax_step_result *out) {
    const double start = ax_clock_now();
    AX_TRY(update_step(s, lr));
    out->lr = lr;
    out->seconds[AX_TIME_OPTIMIZER] += ax_clock_now() - start;
    return AX_OK;
}

enum ax_status ax_step_finish(struct ax_step *s, double lr, double hold_above) {
    AX_TRY(clip_step(s, hold_above));
    AX_TRY(update_step(s, lr));
    return ask_result(s);
}

enum ax_status ax_step_gradients(struct ax_step *s, struct ax_step_result *out) {
    AX_TRY(ax_step_begin(s));
    return ax_step_decide(s, out);
}

enum ax_status ax_step_run(struct ax_step *s, double lr, struct ax_step_result *out) {
    AX_TRY(ax_step_begin(s));
    AX_TRY(ax_step_finish(s, lr, INFINITY));
    return ax_step_answer(s, out);
}

/* ---- beside a step ---- */

void ax_step_drop(struct ax_step *s) {
    for (int unit = 0; unit < s->model.n_units; unit++)
        ax_unit_drop_gradients(&s->model.units[unit]);
}

enum ax_status ax_step_set_scalars(struct ax_step *s) {
    const struct ax_step_scalars last = {
        .step = s->count, .seed = s->o.seed, .max_norm = s->o.max_norm, .clip = 1};
    s->begun = false;
    return ax_queue_write(s->rt->q, s->scalars, &last, sizeof last);
}

enum ax_status ax_step_restore(struct ax_step *s, int64_t count) {
    s->count = count;
    s->model.quant.on = count >= s->o.qat_after;
    AX_TRY(ax_step_set_scalars(s));
    for (int i = 0; i < s->model.n_params; i++)
        AX_TRY(ax_param_round(&s->model, i, &s->states[i], count > 0 ? s->scalars : NULL));
    return ax_queue_finish(s->rt->q);
}
