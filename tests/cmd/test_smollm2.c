/* The real thing: SmolLM2-135M-Instruct from its GGUF file, converted, tokenized, run, and compared
 * with tests/goldens/smollm2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/json.h"
#include "base/log.h"
#include "model/convert/from_gguf.h"
#include "data/text/template/template.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/generate/generate.h"
#include "model/parts/head.h"
#include "tests/golden_files.h"
#include "tests/smollm2.h"

enum { PROMPTS = 3, PASSAGE = 3, NEW_TOKENS = 32 };

static char dir[64];

static void load_golden(struct ax_json_doc *doc, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "smollm2/%s", name);
    if (ax_json_load(doc, golden_path(path), 16 << 20) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* DIR/DTYPE, converted when first asked for. */
static const char *folder(const char *dtype) {
    static char path[96];
    snprintf(path, sizeof path, "%s/%s", dir, dtype);
    if (!ax_path_exists(path)) {
        struct ax_convert c = {.src = smollm2_gguf(), .dst = path, .dtype = dtype};
        if (ax_convert_gguf_to_hf(&c) != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_int_equal(c.tensors, 272);
        assert_int_equal(c.weights, 134515008);
    }
    return path;
}

static int64_t read_ids(struct ax_json list, int32_t **ids) {
    const size_t n = ax_json_size(list);
    assert_int_equal(ax_alloc(ids, n, sizeof **ids), AX_OK);
    for (size_t i = 0; i < n; i++)
        (*ids)[i] = (int32_t)json_integer_value(json_array_get(list.v, i));
    return (int64_t)n;
}

/* --- tokens --- */

static void check_tokens(const char *path) {
    struct ax_json_doc doc;
    struct ax_tokenizer *t;
    load_golden(&doc, "tokenize.json");
    const struct ax_json cases = ax_json_get(ax_json_root(&doc), "cases");
    if (ax_tokenizer_load(&t, path) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(ax_json_size(cases) > 90);
    for (size_t i = 0; i < ax_json_size(cases); i++) {
        const struct ax_json c = ax_json_at(cases, i), decoded = ax_json_get(c, "decoded");
        const json_t *text = json_object_get(c.v, "text");
        const json_t *back = decoded.v ? decoded.v : text;
        const struct ax_encode_options opt = {.add_special_tokens = true};
        struct ax_encoding e = {0};
        struct ax_buf out = {0};
        int32_t *ids;
        const int64_t n = read_ids(ax_json_get(c, "ids"), &ids);
        assert_int_equal(
            ax_tokenizer_encode(t, json_string_value(text), json_string_length(text), &opt, &e),
            AX_OK);
        if ((int64_t)e.n != n || (n > 0 && memcmp(e.ids, ids, (size_t)n * sizeof *ids) != 0))
            fail_msg("%s: case %zu has other ids", path, i);
        assert_int_equal(ax_tokenizer_decode(t, ids, (size_t)n, false, &out), AX_OK);
        assert_int_equal(out.len, json_string_length(back));
        assert_true(out.len == 0 || memcmp(out.data, json_string_value(back), out.len) == 0);
        ax_buf_free(&out);
        ax_encoding_free(&e);
        ax_free(ids);
    }
    ax_tokenizer_free(t);
    ax_json_free(&doc);
}

static void file_and_folder_give_the_reference_tokens(void **state) {
    (void)state;
    check_tokens(smollm2_gguf());
    check_tokens(folder("bfloat16"));
}

/* --- chats --- */

static void check_chat(const struct ax_template *template, const struct ax_tokenizer *t,
                       const json_t *tokens, struct ax_json chat) {
    const struct ax_template_options o = {.chat = true, .defaults = tokens};
    const struct ax_encode_options opt = {0};
    const json_t *text = json_object_get(chat.v, "text");
    struct ax_template_output out;
    struct ax_encoding e = {0};
    int32_t *ids;
    if (ax_template_render(template, chat.v, &o, &out) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(out.len, json_string_length(text));
    assert_memory_equal(out.text, json_string_value(text), out.len);
    assert_int_equal(ax_tokenizer_encode(t, out.text, out.len, &opt, &e), AX_OK);
    assert_int_equal(read_ids(ax_json_get(chat, "ids"), &ids), e.n);
    assert_memory_equal(e.ids, ids, e.n * sizeof *ids);
    ax_free(ids);
    ax_encoding_free(&e);
    ax_template_output_free(&out);
}

static void its_template_gives_the_reference_chats(void **state) {
    (void)state;
    struct ax_json_doc doc;
    struct ax_template *template;
    struct ax_tokenizer *t;
    json_t *tokens;
    const char *path = folder("bfloat16");
    load_golden(&doc, "tokenize.json");
    const struct ax_json chats = ax_json_get(ax_json_root(&doc), "chat");
    assert_int_equal(ax_tokenizer_load(&t, path), AX_OK);
    assert_int_equal(ax_template_folder_tokens(&tokens, path), AX_OK);
    assert_int_equal(ax_template_from_folder(&template, path, NULL, false), AX_OK);
    assert_int_equal(ax_json_size(chats), 16);
    for (size_t i = 0; i < ax_json_size(chats); i++)
        check_chat(template, t, tokens, ax_json_at(chats, i));
    ax_template_free(template);
    json_decref(tokens);
    ax_tokenizer_free(t);
    ax_json_free(&doc);
}

/* --- numbers --- */

struct numbers {
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_json golden;
    const char *column;        /* fp32 or bf16_weights */
    int32_t *ids[PROMPTS + 1]; /* of the prompts, and the passage */
    struct ax_document docs[PROMPTS + 1];
    int64_t tokens, longest;
    double worst_logit, nll;
    int other_tokens;
};

static struct ax_json expected(const struct numbers *n, int prompt, const char *key) {
    const struct ax_json p = ax_json_at(ax_json_get(n->golden, "prompts"), (size_t)prompt);
    return ax_json_get(ax_json_get(p, n->column), key);
}

static double log_sum_exp(const float *z, int64_t n) {
    double max = (double)z[0], sum = 0;
    for (int64_t v = 1; v < n; v++)
        max = fmax(max, (double)z[v]);
    for (int64_t v = 0; v < n; v++)
        sum += exp((double)z[v] - max);
    return max + log(sum);
}

static void compare_prompt(struct numbers *n, int prompt, const float *z) {
    const struct ax_json top = expected(n, prompt, "top20");
    double want;
    assert_int_equal(ax_json_size(top), 20);
    for (size_t i = 0; i < 20; i++) {
        const json_t *pair = json_array_get(top.v, i);
        const json_int_t id = json_integer_value(json_array_get(pair, 0));
        want = json_number_value(json_array_get(pair, 1));
        n->worst_logit = fmax(n->worst_logit, fabs((double)z[id] - want));
    }
    assert_int_equal(ax_json_f64(expected(n, prompt, "logsumexp"), &want), AX_OK);
    n->worst_logit = fmax(n->worst_logit, fabs(log_sum_exp(z, n->arch.vocab_size) - want));
}

static void compare_logits(struct numbers *n, const float *logits) {
    const int64_t V = n->arch.vocab_size;
    int64_t row = 0;
    for (int d = 0; d <= PROMPTS; d++) {
        const struct ax_document *doc = &n->docs[d];
        if (d < PROMPTS)
            compare_prompt(n, d, logits + (row + doc->n - 1) * V);
        for (int64_t i = 0; d == PASSAGE && i + 1 < doc->n; i++) {
            const float *z = logits + (row + i) * V;
            n->nll += (log_sum_exp(z, V) - (double)z[doc->tokens[i + 1]]) / (double)(doc->n - 1);
        }
        row += doc->n;
    }
}

static enum ax_status forward(struct numbers *n, struct ax_model *m) {
    struct ax_runtime *rt = m->rt;
    struct ax_slot slot = {0};
    struct ax_batch batch;
    enum ax_status st;
    AX_TRY(ax_slot_create(&slot, m, &rt->arena.slots[0]));
    ax_batch_allocate(&batch, &rt->arena.persistent, n->tokens, PROMPTS + 1, n->longest, 1, 0);
    AX_TRY_GOTO(ax_batch_fill(&batch, rt->q, m->arch.vocab_size, PROMPTS + 1, n->docs), st, done);
    ax_arena_enter(&rt->arena, AX_PHASE_EVAL);
    struct ax_pass p = {.model = m,
                        .batch = &batch,
                        .slot = &slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY_GOTO(ax_pass_begin(&p), st, done);
    AX_TRY_GOTO(ax_pass_forward_all(&p), st, done);
    struct ax_tensor logits = ax_tensor_2d(m->accum, NULL, n->tokens, m->arch.vocab_size);
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY_GOTO(ax_pass_logits(&p, 0, n->tokens, &logits), st, done);
    if (!ax_runtime_planning(rt))
        compare_logits(n, logits.data);
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(&p);
done:
    ax_slot_free(&slot);
    return st;
}

static enum ax_status generate(struct numbers *n, struct ax_model *m) {
    struct ax_sequence seqs[PROMPTS];
    int32_t tokens[PROMPTS][NEW_TOKENS];
    struct ax_generator g = {0};
    const struct ax_generate_options o = {
        .max_prompt = n->longest, .max_new = NEW_TOKENS, .n_seqs = PROMPTS};
    enum ax_status st;
    for (int i = 0; i < PROMPTS; i++)
        seqs[i] = (struct ax_sequence){
            .n_prompt = n->docs[i].n, .prompt = n->docs[i].tokens, .tokens = tokens[i]};
    AX_TRY_GOTO(ax_generator_create(&g, m, &o), st, done);
    AX_TRY_GOTO(ax_generate(&g, PROMPTS, seqs), st, done);
    for (int i = 0; i < PROMPTS && !ax_runtime_planning(m->rt); i++) {
        const struct ax_json want = expected(n, i, "greedy");
        assert_int_equal(ax_json_size(want), NEW_TOKENS);
        assert_int_equal(seqs[i].n_new, NEW_TOKENS);
        for (size_t k = 0; k < NEW_TOKENS; k++)
            n->other_tokens += tokens[i][k] != json_integer_value(json_array_get(want.v, k));
    }
done:
    ax_generator_free(&g);
    return st;
}

static enum ax_status with_model(struct ax_runtime *rt, struct numbers *n,
                                 enum ax_status (*use)(struct numbers *n, struct ax_model *m)) {
    struct ax_model m;
    const struct ax_model_options o = {.dtype = AX_F32, .max_positions = n->longest + NEW_TOKENS};
    AX_TRY(ax_model_create(&m, &n->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &n->hf), st, done);
    st = use(n, &m);
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status run_forward(struct ax_runtime *rt, void *ctx) {
    return with_model(rt, ctx, forward);
}

static enum ax_status run_generate(struct ax_runtime *rt, void *ctx) {
    return with_model(rt, ctx, generate);
}

static void add_document(struct numbers *n, int d, struct ax_json ids) {
    n->docs[d].n = read_ids(ids, &n->ids[d]);
    n->docs[d].tokens = n->ids[d];
    n->tokens += n->docs[d].n;
    n->longest = n->docs[d].n > n->longest ? n->docs[d].n : n->longest;
}

static void check_numbers(const char *dtype, const char *column, double nll) {
    struct ax_json_doc doc;
    struct numbers n = {.column = column};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    const char *path = folder(dtype);
    load_golden(&doc, "model.json");
    n.golden = ax_json_root(&doc);
    assert_int_equal(ax_arch_load(&n.arch, path), AX_OK);
    assert_int_equal(ax_hf_open(&n.hf, path), AX_OK);
    for (int i = 0; i < PROMPTS; i++)
        add_document(&n, i,
                     ax_json_get(ax_json_at(ax_json_get(n.golden, "prompts"), (size_t)i), "ids"));
    add_document(&n, PASSAGE, ax_json_get(ax_json_get(n.golden, "passage"), "ids"));
    if (ax_runtime_run(&ro, run_forward, &n, NULL) != AX_OK ||
        ax_runtime_run(&ro, run_generate, &n, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    printf("%s: logits off by %.1e, mean NLL %.6f, %d greedy tokens differ\n", dtype, n.worst_logit,
           n.nll, n.other_tokens);
    assert_true(n.worst_logit < 2e-4);
    assert_true(fabs(n.nll - nll) < 2e-5);
    assert_int_equal(n.other_tokens, 0);
    for (int i = 0; i <= PROMPTS; i++)
        ax_free(n.ids[i]);
    ax_hf_close(&n.hf);
    ax_arch_free(&n.arch);
    ax_json_free(&doc);
}

static void exact_weights_give_the_reference_numbers(void **state) {
    (void)state;
    check_numbers("float32", "fp32", 3.816366);
}

static void rounded_weights_give_theirs(void **state) {
    (void)state;
    check_numbers("bfloat16", "bf16_weights", 3.818544);
}

static int make_dir(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    ax_log_set_level(AX_LOG_ERROR);
    snprintf(dir, sizeof dir, "%s/axtrain-smollm2-XXXXXX", tmp && strlen(tmp) < 32 ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_and_folder_give_the_reference_tokens),
        cmocka_unit_test(its_template_gives_the_reference_chats),
        cmocka_unit_test(exact_weights_give_the_reference_numbers),
        cmocka_unit_test(rounded_weights_give_theirs),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
