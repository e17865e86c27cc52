/* Training runs on memory that the host cannot touch: whatever is trained, what a person or a tool
 * can read of the run equals cpu's to the bit, and a run goes on on either device from what the
 * other one saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/queue.h"
#include "tests/optim/train_runs.h"
#include "tests/run_readout.h"
#include "tests/tiny.h"
#include "tests/skip.h"

#define STEPS 4
#define EVERY 2 /* steps between saves, and between evaluations */

#define EXPERTS ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3"

static char *targets[] = {"q_proj", "down_proj"};
static const struct ax_peft_config lora = {
    .r = 3, .alpha = 6, .dropout = 0.25, .targets = {2, targets}};
static const struct ax_peft_config dora = {
    .r = 3, .alpha = 6, .dora = true, .targets = {2, targets}};
static const struct ax_peft_config pissa = {
    .r = 3, .alpha = 6, .start = AX_LORA_PISSA, .targets = {2, targets}};

/* A model to start from: a folder of its own. */
static struct train_case base_run;
static struct ax_hf base;

static void set_qlora(struct ax_train_options *o) {
    o->step.model.adapter = &lora;
    o->step.model.base_store = AX_STORAGE_NF4_DOUBLE;
}

static void set_dora(struct ax_train_options *o) {
    o->step.model.adapter = &dora;
    o->step.recompute = AX_RECOMPUTE_ON;
}

static void set_pissa(struct ax_train_options *o) {
    o->step.model.adapter = &pissa;
    o->weights = &base;
}

static void set_relora(struct ax_train_options *o) {
    o->step.model.adapter = &lora;
    o->step.relora = (struct ax_relora_options){.interval = 1};
    o->step.opt.moments = AX_MOMENTS_8BIT;
}

static void set_8bit(struct ax_train_options *o) {
    o->step.opt.moments = AX_MOMENTS_8BIT;
    o->step.model.masters = AX_MASTERS_REMAINDER;
}

static void set_offload(struct ax_train_options *o) {
    o->step.model.offload.optimizer = o->step.model.offload.activations = true;
}

static void set_offloaded_qlora(struct ax_train_options *o) {
    set_qlora(o);
    o->step.model.offload = (struct ax_offload){.optimizer = true, .layers = true};
}

/* A restart changes frozen weights that are in the host tier. */
static void set_offloaded_relora(struct ax_train_options *o) {
    o->step.model.adapter = &lora;
    o->step.relora = (struct ax_relora_options){.interval = 2};
    o->step.model.offload = (struct ax_offload){.optimizer = true, .layers = true};
}

static void set_muon(struct ax_train_options *o) {
    assert_int_equal(ax_optimizer_find("muon", &o->step.optimizer, &o->step.opt), AX_OK);
}

static void set_nothing(struct ax_train_options *o) {
    (void)o;
}

static const struct method {
    const char *name, *type, *extra;
    enum ax_dtype dtype;
    void (*set)(struct ax_train_options *o);
} methods[] = {
    {"dense", "llama", "", AX_F32, set_nothing},
    {"dense, bf16", "qwen2", "", AX_BF16, set_nothing},
    {"8-bit moments", "llama", "", AX_BF16, set_8bit},
    {"state in the host tier", "llama", "", AX_BF16, set_offload},
    {"Muon", "llama", "", AX_BF16, set_muon},
    {"experts", "mixtral", EXPERTS, AX_BF16, set_nothing},
    {"QLoRA", "llama", "", AX_BF16, set_qlora},
    {"QLoRA in the host tier", "llama", "", AX_BF16, set_offloaded_qlora},
    {"ReLoRA in the host tier", "llama", "", AX_BF16, set_offloaded_relora},
    {"DoRA", "llama", "", AX_F32, set_dora},
    {"PiSSA", "llama", "", AX_F32, set_pissa},
    {"ReLoRA", "llama", "", AX_BF16, set_relora},
};

static void open_method(struct train_case *c, const struct method *m) {
    open_case(c, m->dtype, true);
    ax_arch_free(&c->arch);
    assert_int_equal(tiny_arch(&c->arch, m->type, true, m->extra), AX_OK);
    c->o.max_steps = STEPS;
    c->o.save.when = c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, EVERY};
    c->o.save.resume = AX_RESUME_NEWEST;
    c->o.eval.keep_best = c->o.eval.load_best = true;
    m->set(&c->o);
}

static void run_on(struct train_case *c, const char *backend, int64_t from) {
    struct ax_train_result r;
    c->o.runtime.backend = backend;
    run_ok(c, &r);
    assert_int_equal(r.resumed_from, from);
    assert_int_equal(r.steps, STEPS);
}

/* What the run left on the disk is what the first one on cpu did. */
static void expect_same(const struct run_readout *straight, const struct train_case *c,
                        const struct method *m, const char *what) {
    struct run_readout other;
    assert_int_equal(run_readout_open(&other, c->out), AX_OK);
    const char *difference = run_readout_compare(straight, &other);
    if (difference)
        fail_msg("%s, %s: %s", m->name, what, difference);
    run_readout_close(&other);
}

/* As if the run had ended before its last save. */
static void take_back(const struct train_case *c) {
    char path[192];
    snprintf(path, sizeof path, "%s/checkpoint-%d", c->out, STEPS);
    assert_int_equal(ax_remove_tree(path), AX_OK);
}

static void compare(const struct method *m) {
    struct train_case near, far;
    struct run_readout straight;
    open_method(&near, m);
    open_method(&far, m);
    run_on(&near, "cpu", 0);
    run_on(&far, "far", 0);
    assert_int_equal(run_readout_open(&straight, near.out), AX_OK);
    assert_true(straight.n > 20);
    expect_same(&straight, &far, m, "on far");
    take_back(&near);
    take_back(&far);
    run_on(&near, "far", EVERY);
    run_on(&far, "cpu", EVERY);
    expect_same(&straight, &near, m, "resumed on far");
    expect_same(&straight, &far, m, "resumed on cpu");
    run_readout_close(&straight);
    train_case_close(&near);
    train_case_close(&far);
}

static void runs_on_far_equal_those_on_cpu(void **state) {
    (void)state;
    if (ax_ops_cpu() == NULL)
        skip_because("hardware, AVX2");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        compare(&methods[i]);
}

static int make_base(void **state) {
    struct ax_train_result r;
    quiet(state);
    open_case(&base_run, AX_F32, true);
    base_run.o.runtime.backend = "ref";
    base_run.o.max_steps = 1;
    run_ok(&base_run, &r);
    return ax_hf_open(&base, base_run.out) == AX_OK ? 0 : -1;
}

static int remove_base(void **state) {
    (void)state;
    ax_hf_close(&base);
    train_case_close(&base_run);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_on_far_equal_those_on_cpu),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
