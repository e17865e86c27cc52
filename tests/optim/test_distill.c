/* Runs with a teacher: the loss of a step and that of an evaluation, micro-batches, resume, a device
 * of its own, and what a teacher must be. Meshes: test_train_mesh.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "optim/losses/distill.h"
#include "tests/optim/train_runs.h"

/* Wider and deeper than the student, and tied. %d: tokens. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": 56, "
    "\"intermediate_size\": 70, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 4, \"head_dim\": 10, \"initializer_range\": 0.2, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

static struct ax_distill_options options;
static struct ax_objective objective;
static struct ax_arch teacher;

static void open_with(struct train_case *c, enum ax_dtype dtype, bool packed,
                      struct ax_distill_options o) {
    char text[512];
    struct ax_json_doc doc;
    options = o;
    objective = ax_objective_distill(&options);
    assert_int_equal(train_case_open_for(c, dtype, packed, &objective), AX_OK);
    snprintf(text, sizeof text, config, (int)c->arch.vocab_size);
    assert_int_equal(ax_json_parse(&doc, "config.json", text, strlen(text)), AX_OK);
    assert_int_equal(ax_arch_parse(&teacher, ax_json_root(&doc)), AX_OK);
    ax_json_free(&doc);
    c->o.step.teacher = &teacher;
    if (dtype == AX_F64)
        c->o.runtime.backend = "ref";
}

static void close_case(struct train_case *c) {
    train_case_close(c);
    ax_arch_free(&teacher);
}

/* The loss of one step on all of the evaluation's documents, before any update. */
static double loss_of_a_step(struct ax_distill_options o) {
    struct train_case c;
    struct ax_train_result r;
    open_with(&c, AX_F64, false, o);
    c.o.data.train = c.eval_loader;
    c.o.data.eval = NULL;
    c.o.data.sequences_per_batch = (int64_t)c.eval.n;
    c.o.step.n_microbatches = 1;
    c.o.max_steps = 1;
    ax_loader_start_epoch(c.eval_loader, 0);
    if (ax_train(&c.o, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    close_case(&c);
    return r.loss;
}

static struct ax_eval_result evaluation(struct ax_distill_options o) {
    struct train_case c;
    struct ax_train_result r;
    open_with(&c, AX_F64, false, o);
    c.o.max_steps = 1;
    c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    run_ok(&c, &r);
    close_case(&c);
    return r.first_eval;
}

/* Both parts of the loss, at each kind of divergence. */
static void an_evaluation_has_the_loss_of_a_step(void **state) {
    (void)state;
    static const double betas[] = {0, 0.3, 1};
    for (size_t i = 0; i < sizeof betas / sizeof *betas; i++) {
        const struct ax_distill_options o = {0.7, 0.4, .temperature = i == 1 ? 1.7 : 1,
                                             .beta = betas[i]};
        const struct ax_eval_result r = evaluation(o);
        const double kd = r.measures[AX_DISTILL_DIVERGENCE], ce = r.measures[AX_DISTILL_NLL];
        assert_true(kd > 0.01 && ce > 1);
        assert_true(fabs(r.loss - (0.7 * kd + 0.4 * ce)) < 1e-12);
        assert_true(fabs(r.perplexity - exp(ce)) < 1e-9 * r.perplexity);
        const double step = loss_of_a_step(o);
        if (!(fabs(step - r.loss) < 1e-12))
            fail_msg("beta %g: the step's loss is %.15g, the evaluation's %.15g", betas[i], step,
                     r.loss);
    }
}

/* Divided by the tokens of the step, whichever micro-batch has them. */
static void micro_batches_add_up(void **state) {
    (void)state;
    const struct ax_distill_options o = {1, 0.5, .temperature = 2, .beta = 0.5};
    double loss[2], eval[2];
    for (int k = 0; k < 2; k++) {
        struct train_case c;
        struct ax_train_result r;
        open_with(&c, AX_F64, false, o);
        c.o.data.sequences_per_batch = k ? 1 : 4;
        c.o.step.n_microbatches = k ? 4 : 1;
        c.o.max_steps = 3;
        c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 3};
        run_ok(&c, &r);
        loss[k] = r.loss;
        eval[k] = r.last_eval.loss;
        assert_true(r.last_eval.loss < r.first_eval.loss);
        close_case(&c);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-11);
    assert_true(fabs(eval[0] - eval[1]) < 1e-11);
}

static void remove_output(const struct train_case *c, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", c->out, name);
    assert_int_equal(ax_remove_tree(path), AX_OK);
}

/* A checkpoint has nothing of the teacher, which is loaded again. */
static void a_resumed_run_has_the_same_bits(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_with(&c, AX_F32, true, (struct ax_distill_options){1, 0, .temperature = 1, .beta = 1});
    c.o.max_steps = 4;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c.o.save.resume = AX_RESUME_NEWEST;
    run_ok(&c, &r);
    const uint64_t want = train_case_hash(&c, "model.safetensors");
    remove_output(&c, "checkpoint-4");
    remove_output(&c, "model.safetensors");
    remove_output(&c, "config.json");
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 2);
    assert_int_equal(train_case_hash(&c, "model.safetensors"), want);
    close_case(&c);
}

/* One that the host cannot touch, and that works late. */
static void a_far_device_has_the_same_bits(void **state) {
    (void)state;
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        struct train_case c;
        struct ax_train_result r;
        open_with(&c, AX_F32, true,
                  (struct ax_distill_options){1, 0.2, .temperature = 1.3, .beta = 0.3});
        c.o.runtime.backend = k ? "far" : "cpu";
        c.o.max_steps = 3;
        c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
        run_ok(&c, &r);
        hash[k] = train_case_hash(&c, "model.safetensors");
        close_case(&c);
    }
    assert_int_equal(hash[0], hash[1]);
}

static void a_teacher_needs_the_same_vocabulary(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_with(&c, AX_F32, false, (struct ax_distill_options){1, 0, .temperature = 1});
    teacher.vocab_size++;
    c.o.max_steps = 1;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_CONFIG);
    expect_error("both need the same vocabulary");
    close_case(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(an_evaluation_has_the_loss_of_a_step),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(a_far_device_has_the_same_bits),
        cmocka_unit_test(a_teacher_needs_the_same_vocabulary),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
