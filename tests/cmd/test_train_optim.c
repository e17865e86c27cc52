/* optim_args: which option lands where, in both forms, and what is said about wrong ones. */
#include "config_case.h"

#include "cmd/train/setup.h"

static enum ax_status read_optimizer(struct ax_train_options *o, const char *lines) {
    struct ax_config cfg;
    char yaml[512];
    snprintf(yaml, sizeof yaml, "base_model: m\nlearning_rate: 1e-3\ndatasets: [{path: a}]\n%s",
             lines);
    load_ok(&cfg, yaml, NULL);
    *o = (struct ax_train_options){.step.model.dtype = AX_F32};
    const enum ax_status st = ax_train_optimizer_read(o, &cfg);
    ax_config_free(&cfg);
    return st;
}

static struct ax_optimizer_options options_of(const char *lines) {
    struct ax_train_options o;
    if (read_optimizer(&o, lines) != AX_OK)
        fail_msg("%s: %s", lines, ax_error_text());
    return o.step.opt;
}

static void refused(const char *lines, const char *part) {
    struct ax_train_options o;
    assert_int_equal(read_optimizer(&o, lines), AX_ERR_CONFIG);
    expect_text(ax_error_text(), part);
}

static void numbers_and_flags(void **state) {
    (void)state;
    for (int as_text = 0; as_text < 2; as_text++) {
        struct ax_optimizer_options o = options_of(
            as_text ? "optimizer: muon\noptim_args: \"momentum=0.75, nesterov=false,beta1=0.5\"\n"
                    : "optimizer: muon\noptim_args: {momentum: 0.75, nesterov: false, beta1: "
                      "0.5}\n");
        assert_true(o.momentum == 0.75 && !o.nesterov && o.beta1 == 0.5);
        o = options_of(as_text
                           ? "optimizer: muon\noptim_args: \"nesterov=TRUE,match_rms=true\"\n"
                           : "optimizer: muon\noptim_args: {nesterov: true, match_rms: true}\n");
        assert_true(o.nesterov && o.match_rms);
    }
    struct ax_optimizer_options o =
        options_of("optimizer: adafactor\noptim_args: {eps: 1e-20, eps2: 0.25, decay_rate: -0.5, "
                   "clip_threshold: 2, scale_parameter: true, weight_decay: 0.125}\n");
    assert_true(o.eps == 1e-20 && o.eps2 == 0.25 && o.decay_rate == -0.5);
    assert_true(o.clip_threshold == 2 && o.scale_parameter && o.weight_decay == 0.125);
    o = options_of("optimizer: adamw_torch\noptim_args: {beta1: 0.5, beta2: 0.75, eps: 0.25}\n");
    assert_true(o.beta1 == 0.5 && o.beta2 == 0.75 && o.eps == 0.25);
}

static void idle_memory_moves_where_asked(void **state) {
    (void)state;
    struct ax_train_options o;
    assert_int_equal(read_optimizer(&o, ""), AX_OK);
    assert_false(o.step.model.offload.optimizer || o.step.model.offload.layers);
    assert_int_equal(read_optimizer(&o, "fsdp_config: {offload_params: true}\n"), AX_OK);
    assert_true(o.step.model.offload.optimizer && !o.step.model.offload.layers);
    assert_int_equal(read_optimizer(&o, "layer_offloading: true\n"), AX_OK);
    assert_true(o.step.model.offload.layers && !o.step.model.offload.optimizer);
    assert_false(o.step.model.offload.activations);
    assert_int_equal(read_optimizer(&o, "gradient_checkpointing: true\n"
                                        "activation_offloading: disk\n"),
                     AX_OK);
    assert_true(o.step.model.offload.activations);
}

/* Those of axolotl-contribs-mit and optimi, unless keys say otherwise. */
static void axolotls_own_defaults(void **state) {
    (void)state;
    struct ax_optimizer_options o = options_of("optimizer: muon\n");
    assert_true(o.match_rms && o.beta1 == 0.95 && o.beta2 == 0.95 && o.eps == 1e-8);
    assert_true(o.momentum == 0.95 && o.nesterov);
    o = options_of("optimizer: muon\nadam_beta1: 0.9\nadam_epsilon: 1e-7\n"
                   "optim_args: {match_rms: false}\n");
    assert_true(!o.match_rms && o.beta1 == 0.9 && o.beta2 == 0.95 && o.eps == 1e-7);
    o = options_of("optimizer: optimi_adamw\n");
    assert_true(o.beta1 == 0.9 && o.beta2 == 0.99 && o.eps == 1e-6 && o.keeps_tables);
    o = options_of("optimizer: optimi_adamw\nadam_beta2: 0.999\n");
    assert_true(o.beta2 == 0.999 && o.eps == 1e-6);
    o = options_of("optimizer: adamw_torch\n");
    assert_true(o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8 && !o.keeps_tables);
    assert_true(options_of("optimizer: ao_adamw_fp8\n").keeps_tables);
}

/* The keys that Hugging Face's trainer hands to every optimizer, but to two. */
static void adam_keys(void **state) {
    (void)state;
    static const char keys[] = "adam_beta1: 0.5\nadam_beta2: 0.75\nadam_epsilon: 0.25\n"
                               "weight_decay: 0.125\n";
    static const char *const taken[] = {"adamw_torch", "lion_32bit", "muon"};
    static const char *const others[] = {"adafactor", "sgd"};
    char lines[256];
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        snprintf(lines, sizeof lines, "optimizer: %s\n%s", taken[i], keys);
        const struct ax_optimizer_options o = options_of(lines);
        assert_true(o.beta1 == 0.5 && o.beta2 == 0.75 && o.weight_decay == 0.125);
        assert_true(o.eps == 0.25 || strstr(taken[i], "lion")); /* which has none */
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(lines, sizeof lines, "optimizer: %s\n%s", others[i], keys);
        const struct ax_optimizer_options o = options_of(lines);
        assert_true(o.beta1 != 0.5 && o.beta2 != 0.75 && o.eps != 0.25 && o.weight_decay == 0.125);
    }
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused("optimizer: muon\noptim_args: {nesterov: 1}\n",
            "nesterov: expected true or false, got \"1\"");
    refused("optimizer: muon\noptim_args: \"nesterov\"\n", "expected true or false, got \"\"");
    refused("optimizer: muon\noptim_args: {momentum: 0.9x}\n", "expected a number, got \"0.9x\"");
    refused("optimizer: muon\noptim_args: {momentum: }\n", "expected a number, got \"\"");
    refused("optimizer: muon\noptim_args: {momentum: nan}\n", "expected a number, got \"nan\"");
    refused("optimizer: muon\noptim_args: \"eps=inf\"\n", "expected a number, got \"inf\"");
    refused("optimizer: adafactor\noptim_args: {clip_threshold: 0}\n",
            "clip_threshold: expected a positive number, got 0");
    refused("optimizer: adamw_torch\noptim_args: {beta1: 1}\n",
            "beta1: expected a number from 0 to just below 1, got 1");
    refused("optimizer: sgd\noptim_args: {weight_decay: -0.1}\n",
            "weight_decay: expected a number of 0 or more, got -0.1");
    refused("optimizer: lion_32bit\noptim_args: {eps: 1e-8}\n",
            "\"eps\" is not an option of lion; expected one of beta1, beta2, weight_decay");
}

static enum ax_status read_schedule(struct ax_lr_schedule *s, const char *lines) {
    struct ax_config cfg;
    struct ax_train_options o = {.step.optimizer = &ax_optimizer_adamw};
    char yaml[512];
    snprintf(yaml, sizeof yaml, "base_model: m\nlearning_rate: 1e-3\ndatasets: [{path: a}]\n%s",
             lines);
    load_ok(&cfg, yaml, NULL);
    const enum ax_status st = ax_train_lr_read(&o, &cfg);
    ax_config_free(&cfg);
    *s = o.lr;
    return st;
}

static struct ax_lr_schedule schedule_of(const char *lines) {
    struct ax_lr_schedule s;
    if (read_schedule(&s, lines) != AX_OK)
        fail_msg("%s: %s", lines, ax_error_text());
    return s;
}

/* What axolotl's keys make of the cosine schedule, and of others. */
static void floors(void **state) {
    (void)state;
    static const struct {
        const char *lines;
        enum ax_lr_kind kind;
        double floor, constant;
    } cases[] = {
        {"lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\ncosine_constant_lr_ratio: 0.8\n",
         AX_LR_COSINE_WITH_MIN_LR, 0.1, 0.8},
        {"lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n", AX_LR_COSINE_WITH_MIN_LR, 0.1, 0},
        {"lr_scheduler: cosine\nlr_quadratic_warmup: true\n", AX_LR_COSINE, 0, 0},
        {"lr_scheduler: rex\ncosine_min_lr_ratio: 0.1\n", AX_LR_REX, 0.1, 0},
        {"lr_scheduler: linear\ncosine_min_lr_ratio: 0.1\n", AX_LR_LINEAR, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_lr_schedule s = schedule_of(cases[i].lines);
        assert_int_equal(s.kind, cases[i].kind);
        assert_true(s.min_lr_ratio == cases[i].floor && s.constant_ratio == cases[i].constant);
    }
}

static void mistakes_of_schedules(void **state) {
    (void)state;
    static const struct {
        const char *lines, *said;
    } cases[] = {
        {"lr_scheduler: cosine\nlr_quadratic_warmup: true\ncosine_min_lr_ratio: 0.1\n",
         "lr_quadratic_warmup: cannot be combined with cosine_min_lr_ratio or "},
        {"lr_scheduler: cosine\nlr_quadratic_warmup: true\ncosine_constant_lr_ratio: 0.8\n",
         "lr_quadratic_warmup: cannot be combined with "},
        {"lr_scheduler: cosine\ncosine_constant_lr_ratio: 0.8\n",
         "cosine_constant_lr_ratio: needs cosine_min_lr_ratio, the rate that it keeps"},
        {"lr_scheduler_kwargs: {cycles: 1}\n",
         "\"cycles\" is not an option of cosine, which has num_cycles ("},
        {"lr_scheduler_kwargs: {min_lr: 1e-5}\n", "\"min_lr\" is not an option of cosine, which "},
        {"cosine_min_lr_ratio: 0.1\nlr_scheduler_kwargs: {min_lr: 1e-5}\n", "is not an option of "},
        {"lr_scheduler: linear\nlr_scheduler_kwargs: {num_cycles: 2}\n",
         "\"num_cycles\" is not an option of linear, which has none"},
        {"lr_scheduler: polynomial\nlr_scheduler_kwargs: {power: high}\n",
         "power: expected a number, 0 or more"},
        {"lr_scheduler: polynomial\nlr_scheduler_kwargs: {power: -1}\n",
         "power: expected a number"},
        {"lr_scheduler: polynomial\nlr_scheduler_kwargs: {lr_end: 1e-3}\n",
         "learning_rate: must be above lr_end (0.001)"},
        {"lr_scheduler: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 1.5}\n",
         "timescale: expected a number of steps"},
        {"lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 0.1}\n",
         "min_lr must be at most learning_rate, and min_lr_rate, a fraction of it, at most 1"},
        {"lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-4, min_lr_rate: "
         "0.5}\n",
         "min_lr and min_lr_rate (or min_lr_ratio) are the same floor: give one of them"},
        {"lr_scheduler: cosine_with_min_lr\n",
         "cosine_with_min_lr needs lr_scheduler_kwargs with "},
        {"lr_scheduler: warmup_stable_decay\nlr_scheduler_kwargs: {num_stable_steps: 3}\n",
         "warmup_stable_decay needs lr_scheduler_kwargs with num_decay_steps"},
        {"lr_scheduler: one_cycle\nlr_scheduler_kwargs: {cycle_momentum: true}\n",
         "cycle_momentum: expected false"},
        {"lr_scheduler_kwargs: {cycle_momentum: false}\n",
         "\"cycle_momentum\" is not an option of cosine"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_lr_schedule s;
        assert_int_equal(read_schedule(&s, cases[i].lines), AX_ERR_CONFIG);
        expect_text(ax_error_text(), cases[i].said);
    }
}

/* Each changes its own field and no other. */
static void scheduler_kwargs(void **state) {
    (void)state;
    static const struct {
        const char *kind, *kwargs;
        struct ax_lr_schedule s; /* the fields that differ from the defaults */
    } cases[] = {
        {"cosine_with_restarts", "{}", {.num_cycles = 1}},
        {"cosine_with_restarts", "{num_cycles: 3}", {.num_cycles = 3}},
        {"cosine", "{num_cycles: 3}", {.num_cycles = 3}},
        {"polynomial", "{power: 3.5}", {.power = 3.5}},
        {"polynomial", "{lr_end: 3.5e-6}", {.lr_end = 3.5e-6}},
        {"cosine_with_min_lr", "{min_lr: 2.5e-4}", {.min_lr_ratio = 0.25}}, /* of 1e-3 */
        {"cosine_with_min_lr", "{min_lr_rate: 0.5}", {.min_lr_ratio = 0.5}},
        {"cosine_with_min_lr", "{min_lr: 0, num_cycles: 3}", {.num_cycles = 3}},
        {"warmup_stable_decay",
         "{min_lr_ratio: 0.75, num_decay_steps: 1}",
         {.min_lr_ratio = 0.75, .decay = 1}},
        {"inverse_sqrt", "{timescale: 30}", {.timescale = 30}},
        {"one_cycle", "{cycle_momentum: false}", {0}},
        {"warmup_stable_decay",
         "{num_stable_steps: 31, num_decay_steps: 32}",
         {.stable = 31, .decay = 32}},
    };
    const struct ax_lr_schedule usual = schedule_of("lr_scheduler: constant\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[128];
        const struct ax_lr_schedule *d = &cases[i].s;
        snprintf(lines, sizeof lines, "lr_scheduler: %s\nlr_scheduler_kwargs: %s\n", cases[i].kind,
                 cases[i].kwargs);
        const struct ax_lr_schedule s = schedule_of(lines);
        assert_string_equal(ax_lr_kind_name(s.kind), cases[i].kind);
        assert_true(s.base_lr == 1e-3);
        assert_true(s.num_cycles == (d->num_cycles > 0 ? d->num_cycles : usual.num_cycles));
        assert_true(s.power == (d->power > 0 ? d->power : usual.power));
        assert_true(s.lr_end == (d->lr_end > 0 ? d->lr_end : usual.lr_end));
        assert_true(s.min_lr_ratio == (d->min_lr_ratio > 0 ? d->min_lr_ratio : usual.min_lr_ratio));
        assert_int_equal(s.timescale, d->timescale > 0 ? d->timescale : usual.timescale);
        assert_int_equal(s.stable, d->stable > 0 ? d->stable : usual.stable);
        assert_int_equal(s.decay, d->decay > 0 ? d->decay : usual.decay);
    }
    assert_true(usual.num_cycles == 0.5 && usual.power == 1 && usual.lr_end == 1e-7);
    assert_true(schedule_of("lr_scheduler: cosine\n").num_cycles == 0.5);
    assert_int_equal(usual.decay_type, AX_LR_DECAY_COSINE);
    assert_true(usual.stable == -1 && usual.decay == 0 && usual.timescale == 0);
    static const char *const decays[] = {[AX_LR_DECAY_LINEAR] = "linear",
                                         [AX_LR_DECAY_COSINE] = "cosine",
                                         [AX_LR_DECAY_1_SQRT] = "1-sqrt"};
    for (int i = 0; i < 3; i++) {
        char lines[128];
        snprintf(lines, sizeof lines,
                 "lr_scheduler: warmup_stable_decay\n"
                 "lr_scheduler_kwargs: {decay_type: %s, num_decay_steps: 1}\n",
                 decays[i]);
        assert_int_equal(schedule_of(lines).decay_type, i);
    }
}

static void restarts(void **state) {
    (void)state;
    struct ax_lr_schedule s = schedule_of("jagged_restart_steps: 50\n"
                                          "jagged_restart_anneal_steps: false\n");
    assert_int_equal(s.restart, 50);
    assert_int_equal(s.restart_warmup, 10);
    assert_int_equal(s.restart_anneal, 1);
    assert_true(s.restart_floor == 0.001);
    s = schedule_of("jagged_restart_steps: 9\njagged_restart_warmup_steps: 4\n"
                    "jagged_restart_anneal_steps: 3\ncosine_min_lr_ratio: 0.25\n");
    assert_int_equal(s.restart_warmup, 4);
    assert_int_equal(s.restart_anneal, 3);
    assert_true(s.restart_floor == 0.25);
    assert_int_equal(schedule_of("").restart, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scheduler_kwargs),      cmocka_unit_test(restarts),
        cmocka_unit_test(numbers_and_flags),     cmocka_unit_test(idle_memory_moves_where_asked),
        cmocka_unit_test(axolotls_own_defaults), cmocka_unit_test(adam_keys),
        cmocka_unit_test(mistakes_are_named),    cmocka_unit_test(floors),
        cmocka_unit_test(mistakes_of_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
