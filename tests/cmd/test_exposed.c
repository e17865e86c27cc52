/* How much of a step waits for transfers, with overlap and without: in the delay fabric's mode
 * of turns, on links of H100s in miniature (tests/doubles/scaled_link.h). A small model here;
 * AXTRAIN_SWEEP=1 prints the table of docs/results/overlap.md, and AX_UPDATE=1 then draws its
 * pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/report/report.h"
#include "tests/doubles/scaled_link.h"
#include "optim/metrics/trace.h"
#include "tests/sweep.h"
#include "tests/tiny.h"
#include "tests/skip.h"

enum { MOST_RANKS = 4, STEPS = 2 }; /* that are measured, after one that is not */

struct model {
    const char *name;
    int hidden, ffn, layers, heads, kv_heads, vocab;
    int64_t tokens; /* of a micro-batch */
    int micro;
};

struct mesh {
    const char *name;
    struct ax_mesh_sizes sizes;
    const char *picture; /* of docs/results/, of the first … */
    int ranks;           /* … of the ranks */
};

static void make_arch(struct ax_arch *arch, const struct model *m) {
    char text[512];
    struct ax_json_doc doc;
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"head_dim\": %d, \"max_position_embeddings\": 4096}",
             m->vocab, m->hidden, m->ffn, m->layers, m->heads, m->kv_heads, m->hidden / m->heads);
    assert_int_equal(ax_json_parse(&doc, "arch", text, strlen(text)), AX_OK);
    assert_int_equal(ax_arch_parse(arch, ax_json_root(&doc)), AX_OK);
    ax_json_free(&doc);
}

struct run {
    const struct ax_arch *arch;
    const int64_t *lengths;
    struct ax_mesh_sizes sizes;
    struct ax_step_options o;
    /* out: seconds of a rank's step, means of all; and the spans of the last step */
    struct step_times {
        double step, waited[AX_ROLE_COUNT];
    } steps[STEPS], best; /* the shortest one, which other processes disturbed least */
    struct ax_timeline spans[MOST_RANKS];
    double begin[MOST_RANKS];
};

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static double now(const void *fabric) {
    return ax_delay_now(fabric);
}

/* Adds the clock's times, or takes them away. Ranks take turns: one at a time is here. */
static void add_times(struct step_times *t, const struct ax_fabric *f, double sign) {
    t->step += sign / f->world * ax_delay_now(f);
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        t->waited[role] += sign / f->world * ax_delay_exposed(f, (enum ax_role)role);
}

static enum ax_status take_steps(struct run *r, struct ax_step *s) {
    struct ax_fabric *f = s->rt->fabric;
    struct ax_timeline *spans = &r->spans[s->rt->mesh.rank];
    struct ax_step_result result;
    AX_TRY(ax_model_init_random(&s->model, 5));
    AX_TRY(tiny_fill(s, r->lengths, 1));
    AX_TRY(ax_step_run(s, 1e-3, &result));
    for (int i = 0; i < STEPS && !ax_runtime_planning(s->rt); i++) {
        ax_timeline_free(spans);
        spans->now = now;
        spans->clock = f;
        s->rt->q->timeline = spans;
        r->begin[s->rt->mesh.rank] = ax_delay_now(f);
        add_times(&r->steps[i], f, -1);
        AX_TRY(ax_step_run(s, 1e-3, &result));
        add_times(&r->steps[i], f, 1);
        s->rt->q->timeline = NULL;
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, r->arch, &r->o));
    const enum ax_status st = take_steps(r, &s);
    ax_step_free(&s);
    return st;
}

static struct ax_runtime_options runtime_of(const struct run *r, const char *backend) {
    return (struct ax_runtime_options){.backend = backend,
                                       .threads = 1,
                                       .n_slots = 1,
                                       .sizes = r->sizes,
                                       .world = world_of(&r->sizes)};
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *r = ctx;
    struct ax_runtime_options o = runtime_of(r, "cpu");
    struct ax_mesh mesh;
    o.fabric = fabric;
    AX_TRY(ax_mesh_create(&mesh, r->sizes, fabric->world, fabric->rank));
    AX_TRY(ax_step_slots(&r->o, mesh.coord[AX_ROLE_PP], r->sizes.pp, &o.n_slots));
    return ax_runtime_run(&o, body, r, NULL);
}

static void measure(struct run *r, struct ax_delay_link link) {
    memset(r->steps, 0, sizeof r->steps);
    if (ax_delay_run(world_of(&r->sizes), link, true, run_rank, r) != AX_OK)
        fail_msg("%s", ax_error_text());
    r->best = r->steps[0];
    for (int i = 1; i < STEPS; i++)
        if (r->steps[i].step < r->best.step)
            r->best = r->steps[i];
}

static void forget(struct run *r) {
    for (int i = 0; i < MOST_RANKS; i++)
        ax_timeline_free(&r->spans[i]);
}

static double all_waits(const struct step_times *t) {
    double sum = 0;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        sum += t->waited[role];
    return sum;
}

static double waits_of(const struct run *r) {
    return all_waits(&r->best);
}

/* ---- pictures ---- */

static void read_spans(const struct run *r, struct ax_report_timeline *t) {
    struct ax_trace trace;
    struct ax_json_doc doc;
    assert_int_equal(ax_trace_begin(&trace), AX_OK);
    for (int i = 0; i < world_of(&r->sizes); i++)
        assert_int_equal(ax_trace_timeline(&trace, i, &r->spans[i], r->begin[0]), AX_OK);
    assert_int_equal(ax_trace_end(&trace), AX_OK);
    assert_int_equal(ax_json_parse(&doc, "timeline", trace.text.data, trace.text.len), AX_OK);
    assert_int_equal(ax_report_timeline_read(t, doc.root), AX_OK);
    ax_json_free(&doc);
    ax_trace_free(&trace);
}

static void put_run(struct ax_buf *out, const struct run *r, const char *title, int ranks, int *y) {
    const struct step_times *last = &r->steps[STEPS - 1];
    struct ax_report_timeline t = {0};
    read_spans(r, &t);
    assert_int_equal(ax_buf_printf(out,
                                   "<text x=\"0\" y=\"%d\">%s: waits %.1f %% of the step</text>\n",
                                   *y + 12, title, 100 * all_waits(last) / last->step),
                     AX_OK);
    *y += 20;
    for (int i = 0; i < ranks; i++, *y += 30) {
        assert_int_equal(ax_buf_printf(out, "<g transform=\"translate(0,%d)\">", *y), AX_OK);
        assert_int_equal(ax_report_put_lanes(out, &t, i), AX_OK);
        assert_int_equal(ax_buf_puts(out, "</g>\n"), AX_OK);
    }
    *y += 10;
    ax_report_timeline_free(&t);
}

/* Two runs, one above the other. */
static void draw(const struct mesh *mesh, const struct run runs[2], const char *const titles[2]) {
    struct ax_buf body_text = {0}, out = {0};
    char path[96];
    int y = 24;
    for (int i = 0; i < 2; i++)
        put_run(&body_text, &runs[i], titles[i], mesh->ranks, &y);
    assert_int_equal(
        ax_buf_printf(&out,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-10 0 1020 %d\" "
                      "font-family=\"sans-serif\" font-size=\"12\">\n<style>.f0{fill:#2f6fde}"
                      ".f1{fill:#d9741f}.f2{fill:#9ad0b8}.f3{fill:#9a5fc4}</style>\n"
                      "<rect x=\"-10\" width=\"1020\" height=\"%d\" fill=\"#fff\"/>\n"
                      "<text x=\"0\" y=\"14\">A rank per two rows: above, blue: computes; below, "
                      "green: transfers under way, orange: waits for one, violet: waits for "
                      "another stage</text>\n%s</svg>\n",
                      y, y, body_text.data),
        AX_OK);
    snprintf(path, sizeof path, "docs/results/%s", mesh->picture);
    assert_int_equal(ax_write_file_atomic(path, out.data, out.len), AX_OK);
    ax_buf_free(&body_text);
    ax_buf_free(&out);
}

/* ---- the table ---- */

/* One step, with everything that hides transfers or with nothing. */
static struct ax_step_options options_of(const struct model *m, const int64_t *lengths, bool on) {
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, m->micro, lengths);
    o.model.sharding = ax_zero_stage(3);
    o.model.sharding.prefetch = o.model.tp_overlap = on;
    o.model.cp_method = on ? AX_CP_RING : AX_CP_GATHER;
    o.pipeline = on ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_1F1B;
    return o;
}

/* Links between H100s, for a run that measured what a step computes: as if they trained `there`. */
static struct ax_delay_link link_of(const struct run *r, const struct model *there) {
    const int64_t lengths[] = {there->tokens, 0};
    const struct ax_runtime_options ro = runtime_of(r, "sheet");
    const struct ax_step_options o = options_of(there, lengths, false);
    struct ax_scaled_link link;
    struct ax_arch arch;
    make_arch(&arch, there);
    if (ax_scaled_link(&link, "h100-sxm-80", &ro, &(struct ax_scaled_step){r->arch, &r->o},
                       r->best.step - waits_of(r), &(struct ax_scaled_step){&arch, &o}) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&arch);
    print_message("  (%.4g times slower, %.4g of the bytes: latency %.3g ms, %.4g MB/s)\n",
                  link.slower, link.smaller, 1e3 * link.link.latency,
                  1e-6 * link.link.bytes_per_second);
    return link.link;
}

enum { FREE, OFF, ON, RUNS };
static const char *const titles[RUNS] = {"free links", "no overlap", "overlap"};

static void print_run(const struct run *r, const char *title) {
    print_message("  %-10s  step %.3f s, waits %5.2f %%:", title, r->best.step,
                  100 * waits_of(r) / r->best.step);
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        if (r->best.waited[role] > 1e-4 * r->best.step)
            print_message(" %s %.2f", ax_role_name((enum ax_role)role),
                          100 * r->best.waited[role] / r->best.step);
    print_message("\n");
}

/* Seconds of a step that ranks wait: for each other where links take no time, which is not communication; without
 * overlap; with it. `there`: see link_of; NULL: links are free in all. */
static void compare(const struct model *m, const struct mesh *mesh, const struct model *there,
                    struct run runs[RUNS]) {
    const int64_t lengths[] = {m->tokens, 0};
    struct ax_delay_link link = {0};
    struct ax_arch arch;
    make_arch(&arch, m);
    print_message("%s, %s, as %s\n", mesh->name, m->name, there ? there->name : "without links");
    memset(runs, 0, RUNS * sizeof *runs);
    for (int i = there ? FREE : OFF; i < RUNS; i++) {
        runs[i] = (struct run){.arch = &arch,
                               .lengths = lengths,
                               .sizes = mesh->sizes,
                               .o = options_of(m, lengths, i == ON)};
        measure(&runs[i], link);
        if (i == FREE && there)
            link = link_of(&runs[i], there);
        print_run(&runs[i], titles[i]);
    }
    if (mesh->picture && getenv("AX_UPDATE"))
        draw(mesh, &runs[OFF], &titles[OFF]);
    for (int i = 0; i < RUNS; i++)
        forget(&runs[i]);
    ax_arch_free(&arch);
}

static double communication(const struct run runs[RUNS], int which) {
    return waits_of(&runs[which]) - waits_of(&runs[FREE]);
}

static const struct model tiny = {"8 layers of 192", 192, 512, 8, 4, 2, 512, 512, 4},
                          wide = {"4 layers of 576", 576, 1536, 4, 8, 4, 2048, 256, 2},
                          few = {"2 layers of 192", 192, 512, 2, 4, 2, 512, 256, 2};
static const struct model deep = {"8 layers of 576", 576, 1536, 8, 8, 4, 512, 256, 8};
/* Eight, four and two of an 8B model's layers, with an embedding in proportion, 8192 tokens. */
static const struct model
    large8 = {"8 of an 8B model's layers", 4096, 14336, 8, 32, 8, 32000, 8192, 4},
    large4 = {"4 of an 8B model's layers", 4096, 14336, 4, 32, 8, 16000, 8192, 2},
    large2 = {"2 of an 8B model's layers", 4096, 14336, 2, 32, 8, 8000, 8192, 2};

static const struct mesh dp_shard = {"dp_shard 4", {1, 1, 4, 1, 1, 1}, "overlap-fsdp.svg", 2},
                         hybrid = {"dp_replicate 2 x dp_shard 2", {1, 2, 2, 1, 1, 1}, NULL, 0},
                         ring = {"cp 2, ring", {1, 1, 1, 2, 1, 1}, "overlap-cp.svg", 1},
                         chunks = {"tp 2, chunks", {1, 1, 1, 1, 2, 1}, "overlap-tp.svg", 1},
                         stages = {"pp 4", {4, 1, 1, 1, 1, 1}, "overlap-pp.svg", 4};

static struct ax_scaled_link scaled(double seconds, const struct model *here,
                                    const struct model *there) {
    const struct run r = {.sizes = dp_shard.sizes};
    const int64_t lengths[] = {256, 0};
    const struct ax_runtime_options ro = runtime_of(&r, "sheet");
    const struct ax_step_options o = options_of(here, lengths, false);
    struct ax_arch small, large;
    struct ax_scaled_link link;
    make_arch(&small, here);
    make_arch(&large, there);
    assert_int_equal(ax_scaled_link(&link, "h100-sxm-80", &ro, &(struct ax_scaled_step){&small, &o},
                                    seconds, &(struct ax_scaled_step){&large, &o}),
                     AX_OK);
    ax_arch_free(&small);
    ax_arch_free(&large);
    return link;
}

/* Four H100s: NVLink's 450 GB/s of which gathers reach 362, and three hops of 2 us after 5. */
static void links_are_to_scale(void **state) {
    (void)state;
    const struct ax_scaled_link one = scaled(1, &few, &few), two = scaled(2, &few, &few),
                                other = scaled(1, &few, &wide);
    assert_true(one.smaller == 1 && fabs(two.slower / one.slower - 2) < 1e-9);
    assert_true(fabs(one.link.latency / one.slower - 11e-6) < 1e-9);
    assert_true(fabs(one.link.bytes_per_second * one.slower - 362e9) < 1e9);
    assert_true(fabs(two.link.latency / one.link.latency - 2) < 1e-9);
    assert_true(fabs(one.link.bytes_per_second / two.link.bytes_per_second - 2) < 1e-9);
    /* a larger step takes longer there, and sends more */
    assert_true(other.slower < one.slower && other.smaller < 1);
    assert_true(fabs(other.link.bytes_per_second * other.slower / other.smaller - 362e9) < 1e9);
}

/* The share of the communication that overlap hides, as measured while other processes disturb some of the tries. */
static double hidden_at_best(const struct mesh *mesh, double enough) {
    double best = 0;
    for (int tries = 0; tries < 5 && best < enough; tries++) {
        struct run runs[RUNS];
        compare(&few, mesh, &large2, runs);
        const double off = communication(runs, OFF), hidden = 1 - communication(runs, ON) / off;
        if (off > 0.05 * runs[OFF].best.step && hidden > best)
            best = hidden;
    }
    print_message("  hidden: %.0f %%\n", 100 * best);
    return best;
}

static void transfers_hide(void **state) {
    (void)state;
    static const struct mesh *const meshes[] = {&dp_shard, &hybrid, &ring, &chunks};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        assert_true(hidden_at_best(meshes[i], 0.5) >= 0.5);
}

/* The table. Tiny and as wide as a 135M model, with an 8B model's proportions, and tiny as it is on H100s. */
static void table(void **state) {
    (void)state;
    static const struct {
        const struct model *m, *there;
    } kinds[] = {{&tiny, &tiny}, {&wide, &large4}, {&tiny, &large8}};
    static const struct mesh *const meshes[] = {&dp_shard, &hybrid, &ring, &chunks};
    print_message(
        "| mesh | model | as | waits without overlap | with | of free links | hidden |\n");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
            struct run runs[RUNS];
            compare(kinds[k].m, meshes[i], kinds[k].there, runs);
            print_message("| %s | %s | %s | %.1f %% | %.1f %% | %.1f %% | %.0f %% |\n",
                          meshes[i]->name, kinds[k].m->name,
                          kinds[k].there == kinds[k].m ? "itself" : kinds[k].there->name,
                          100 * waits_of(&runs[OFF]) / runs[OFF].best.step,
                          100 * waits_of(&runs[ON]) / runs[ON].best.step,
                          100 * waits_of(&runs[FREE]) / runs[FREE].best.step,
                          100 * (1 - communication(runs, ON) / communication(runs, OFF)));
        }
}

/* Zero-bubble against 1F1B, in seconds: the step that it shortens is no measure. */
static void bubbles(void **state) {
    (void)state;
    struct run runs[RUNS];
    compare(&deep, &stages, NULL, runs);
    print_message("| %s | %s | %.1f %% | %.1f %% | %.2f of the seconds |\n", stages.name, deep.name,
                  100 * waits_of(&runs[OFF]) / runs[OFF].best.step,
                  100 * waits_of(&runs[ON]) / runs[ON].best.step,
                  waits_of(&runs[ON]) / waits_of(&runs[OFF]));
    assert_true(waits_of(&runs[ON]) <= 0.6 * waits_of(&runs[OFF]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_to_scale),
        unit_test_if(sweeping(), transfers_hide),
        unit_test_if(sweeping(), table),
        unit_test_if(sweeping(), bubbles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
