/* The blocks of the pages that a newcomer copies from: each command is run, in the order of the page, in a
 * folder with what the page says is there (but the model is the one that counts), and prints what the page
 * says it prints.
 *
 * In a page's output "…" is anything, alone on a line any lines. Numbers with their units are not compared,
 * as they are those of a real model on a quiet machine, nor is what a model answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/cmd/transcripts.h"

#define MAX_LINES 256

/* sft.yaml and c.yaml; models base and my-model, an adapter, and prompts. */
#define SMALL_RUN                                                                                  \
    "axtrain problems --rows 40 -o train.jsonl && cp -r model/ smollm2 &&\n"                       \
    "sed -i 's/\"use_regex\": false/\"use_regex\": true/' smollm2/tokenizer.json &&\n"             \
    "sed -i 's/embeddings\": 256/embeddings\": 2048/' smollm2/config.json\n"                       \
    "for m in base my-model; do ln -s smollm2 $m; done\n"                                          \
    "cat > sft.yaml <<END\nbase_model: smollm2\ndatasets:\n  - path: train.jsonl\n    type: "      \
    "chat_template\nsequence_len: 1024\nmax_steps: 1\nlearning_rate: 1e-4\noutput_dir: "           \
    "tuned\nEND\n"                                                                                 \
    "cp sft.yaml c.yaml\n"                                                                         \
    "echo '{\"prompt\": \"go on\"}' > prompts.jsonl; cp prompts.jsonl questions.jsonl\n"           \
    "axtrain sft sft.yaml --quiet adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true "     \
    "base_model=base "                                                                             \
    "output_dir=adapter save_strategy=no\n"

static const char first_hour[] =
    "cp -r model/ base && sed -i 's/\"use_regex\": false/\"use_regex\": true/' "
    "base/tokenizer.json\n"
    "sed -i 's/embeddings\": 256/embeddings\": 2048/' base/config.json\n"
    "cat > base/tokenizer_config.json <<'END'\n"
    "{\"eos_token\": \"<|im_end|>\", \"pad_token\": \"<|im_end|>\", \"chat_template\": \"{% for m "
    "in "
    "messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\\nYou are a helpful "
    "AI "
    "assistant named SmolLM, trained by Hugging Face<|im_end|>\\n{% endif %}<|im_start|>{{ m.role "
    "}}\\n{{ m.content }}<|im_end|>\\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\\n{% endif %}\"}\nEND\n"
    "axtrain convert base SmolLM2-135M-Instruct.Q4_1.gguf --quant q8_0\n"
    "for i in $(seq 330); do more=$(seq -s ' ' $((i % 24 / 23 * 220))); cat <<END\n"
    "{\"question\": \"Charles is wondering how much chocolate milk he can make of $i ounces, "
    "$more. "
    "How many will he drink?\", \"answer\": \"He has enough milk for 20 glasses of chocolate milk "
    "because 130 / "
    "6.5 = <<130/6.5=20>>20\\n20 are 160 ounces.\\n#### 160\"}\n"
    "END\ndone > all.jsonl\n"
    "head -n 300 all.jsonl > gsm8k_train.jsonl; tail -n 24 all.jsonl > gsm8k_test.jsonl\n";

static const struct page {
    const char *path, *set_up;
    const char *yaml; /* the file that its block of YAML is; NULL: it has only parts, or none */
} pages[] = {
    {"README.md", SMALL_RUN, "sft.yaml"},
    {"docs/first-hour.md", first_hour, NULL},
    {"docs/from-axolotl.md", SMALL_RUN, NULL},
    {"docs/from-trl.md", "true", "c.yaml"},
    {"docs/launch.md", SMALL_RUN, NULL},
    {"docs/deploying.md", SMALL_RUN "cp -r smollm2 out", NULL},
};

/* Lines of blocks that begin so are not run, nor is the rest of a block after one with `rest`. */
static struct {
    const char *page, *begins, *why;
    bool rest;
    int met;
} not_run[] = {
    {.page = "README.md", .begins = "make ", .why = "builds this program: tools/check-clone"},
    {.page = "docs/launch.md", .begins = "#!/bin/bash", .rest = true, .why = "Slurm: tests/slurm"},
    {.page = "docs/launch.md",
     .begins = "rank 3 (process",
     .rest = true,
     .why = "a rank is killed: tests/cmd/test_elastic.c"},
    {.page = "docs/deploying.md",
     .begins = "from transformers",
     .rest = true,
     .why = "Python with transformers and PEFT: tests/peers"},
    {.page = "docs/deploying.md", .begins = "vllm ", .why = "another program"},
    {.page = "docs/deploying.md", .begins = "llama-server ", .why = "another program"},
    {.page = "docs/deploying.md", .begins = "ollama ", .why = "another program"},
};

/* Lines that depend on what a model answers: the page has them, the program need not. */
static const char *const answered[] = {"# answers were truncated"};

/* ---- lines ---- */

struct lines {
    struct ax_buf text;
    const char *line[MAX_LINES]; /* end at '\n' or 0 */
    int n;
};

/* A run of spaces is one. */
static void join_spaces(struct ax_buf *text) {
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++)
        if (text->data[i] != ' ' || i == 0 || text->data[i - 1] != ' ')
            text->data[n++] = text->data[i];
    text->len = n;
    text->data[n] = '\0';
}

/* The lines of a text, with '#' for each number and its unit, and one space for several. */
static void mask_lines(struct lines *l, const char *text, size_t len) {
    static struct transcript t;
    static const char *const numbers[] = {"([0-9][0-9.,e+-]*)", "(#m #s)",  "(#[.,]? [KMGT]iB)",
                                          "(# [kM]) ",          "(# m?s)$", "(# m?s)[ ,;]",
                                          "(#[kM])[^A-Za-z_]"};
    if (t.n_masks == 0)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            add_mask(&t, numbers[i], strlen(numbers[i]), "#");
    *l = (struct lines){0};
    add_text(&l->text, text, len);
    for (int i = 0; i < t.n_masks && l->text.len > 0; i++)
        apply_mask(&t.masks[i], &l->text);
    join_spaces(&l->text);
    for (const char *at = l->text.data; *at; at = after_line(at)) {
        assert_true(l->n < MAX_LINES);
        l->line[l->n++] = at;
    }
}

/* Whether a line is the page's, in which "…" is anything. */
static bool line_matches(const char *page, const char *line) {
    static const char any[] = "…";
    for (const char *at = line; begins(page, any); at++) {
        if (line_matches(page + strlen(any), at))
            return true;
        if (*at == '\n' || !*at)
            return false;
    }
    const bool page_ends = *page == '\n' || !*page, line_ends = *line == '\n' || !*line;
    return page_ends || line_ends ? page_ends && line_ends
                                  : *page == *line && line_matches(page + 1, line + 1);
}

static bool is_answered(const char *line) {
    bool is = false;
    for (size_t i = 0; i < sizeof answered / sizeof *answered; i++)
        is = is || begins(line, answered[i]);
    return is;
}

/* Whether lines of the program are those of the page from `i` on; `far`: the first of the page's that was
 * not met. */
static bool lines_match(const struct lines *page, int i, const struct lines *now, int k, int *far) {
    *far = i > *far ? i : *far;
    if (i == page->n)
        return k == now->n;
    if (begins(page->line[i], "…\n"))
        return lines_match(page, i + 1, now, k, far) ||
               (k < now->n && lines_match(page, i, now, k + 1, far));
    if (k < now->n && line_matches(page->line[i], now->line[k]) &&
        lines_match(page, i + 1, now, k + 1, far))
        return true;
    return is_answered(page->line[i]) && lines_match(page, i + 1, now, k, far);
}

/* ---- commands ---- */

/* A command of a page: words for sh, what is typed into it, and what it prints. */
struct shown {
    struct ax_buf command, typed, output;
    bool again; /* the page shows what the command before prints when it runs again */
    bool interrupted;
};

static void free_shown(struct shown *c) {
    ax_buf_free(&c->command);
    ax_buf_free(&c->typed);
    ax_buf_free(&c->output);
}

/* For sh: with its input, and with Ctrl-C after the first steps, of which each then takes longer. */
static void put_run(struct ax_buf *b, const struct shown *c) {
    if (c->typed.len > 0)
        assert_int_equal(ax_buf_printf(b, "cat > typed <<'END'\n%sEND\n", c->typed.data), AX_OK);
    const size_t n = c->command.len - (c->command.data[c->command.len - 1] == '\n');
    const char *slower = c->interrupted || c->again ? " gradient_accumulation_steps=2" : "";
    assert_int_equal(
        ax_buf_printf(b, "%s%.*s%s%s%s\n", c->interrupted ? "env --default-signal=INT " : "",
                      (int)n, c->command.data, slower, c->typed.len > 0 ? " < typed" : "",
                      c->interrupted
                          ? " &\nuntil grep -qs '\"step\": *[1-9]' out/*/metrics.jsonl; do sleep "
                            "0.01; done\nkill -INT $!; wait $!"
                          : ""),
        AX_OK);
}

/* Returns 1 if it fails or prints other than the page. */
static int check_command(struct transcript *t, const struct page *p, const struct shown *c) {
    struct ax_buf run = {0};
    struct lines page, now;
    int far = 0;
    put_run(&run, c);
    const int code = run_in_terminal(t, run.data);
    ax_buf_free(&run);
    mask_lines(&page, c->output.data ? c->output.data : "", c->output.len);
    mask_lines(&now, t->said.data, t->said.len);
    bool fails = false;
    for (int i = 0; i < page.n; i++)
        fails = fails || begins(page.line[i], "error ");
    const bool answers = strstr(c->command.data, "axtrain generate") || c->typed.len > 0;
    const bool compared = page.n > 0 && !answers;
    int wrong = (code != 0) != fails;
    if (wrong)
        fprintf(stderr, "%s: %s: exit code %d\n%s\n", p->path, c->command.data, code, t->said.data);
    else if (compared && !lines_match(&page, 0, &now, 0, &far)) {
        const char *line = far < page.n ? page.line[far] : "(the end)";
        fprintf(stderr,
                "%s: %sprints other than the page from this line on: %.*s\nIt prints:\n%s\n",
                p->path, c->command.data, (int)strcspn(line, "\n"), line, t->said.data);
        wrong = 1;
    }
    ax_buf_free(&page.text);
    ax_buf_free(&now.text);
    return wrong;
}

/* ---- blocks ---- */

static int exempt(const struct page *p, const char *line) {
    for (size_t i = 0; i < sizeof not_run / sizeof *not_run; i++) {
        if (strcmp(not_run[i].page, p->path) != 0 || !begins(line, not_run[i].begins))
            continue;
        not_run[i].met++;
        return not_run[i].rest ? 2 : 1;
    }
    return 0;
}

/* One command and what follows it in the block; returns what follows that. */
static const char *read_shown(struct shown *c, const char *at, const char *end, bool console) {
    const char *next;
    bool goes_on = true;
    at += console ? 2 : 0;
    for (; goes_on && at < end; at = next) {
        next = after_line(at);
        goes_on = next - at >= 2 && next[-2] == '\\';
        add_text(&c->command, at, (size_t)(next - at));
    }
    for (; console && at < end && !begins(at, "$ "); at = next) {
        next = after_line(at);
        if (begins(at, "^C"))
            c->interrupted = true;
        else if (begins(at, "> "))
            add_text(&c->typed, at + 2, (size_t)(next - at - 2));
        else
            add_text(&c->output, at, (size_t)(next - at));
    }
    return at;
}

/* A block's commands. One without "$ " has a command on each line, or is what the last command prints when it runs
 * again. */
static int check_block(struct transcript *t, const struct page *p, struct shown *last,
                       const char *at, const char *end, bool shell, int *n) {
    const bool console = begins(at, "$ ");
    int wrong = 0;
    if (!console && !shell && !begins(at, "axtrain ") && !exempt(p, at)) {
        assert_true(last->command.len > 0);
        ax_buf_free(&last->output);
        add_text(&last->output, at, (size_t)(end - at));
        last->interrupted = false;
        last->again = true;
        ++*n;
        return check_command(t, p, last);
    }
    while (at < end) {
        const int left_out = console ? 0 : exempt(p, at);
        if (left_out) {
            at = left_out == 2 ? end : after_line(at);
            continue;
        }
        free_shown(last);
        *last = (struct shown){0};
        at = read_shown(last, at, end, console);
        wrong += check_command(t, p, last);
        ++*n;
    }
    return wrong;
}

/* A block of YAML is a configuration that the program accepts, or a part of one, which is added to sft.yaml. */
static int check_yaml(struct transcript *t, const struct page *p, const char *at, const char *end) {
    struct ax_buf run = {0};
    const bool is_part = !begins(at, "base_model:");
    assert_int_equal(ax_buf_printf(&run, "cat %s - > %s <<'END'\n%.*sEND\naxtrain config show %s",
                                   is_part ? "sft.yaml" : "", is_part ? "part.yaml" : p->yaml,
                                   (int)(end - at), at, is_part ? "part.yaml" : p->yaml),
                     AX_OK);
    const int code = run_in_terminal(t, run.data);
    if (code != 0)
        fprintf(stderr, "%s: its configuration: %s\n", p->path, t->said.data);
    ax_buf_free(&run);
    return code != 0;
}

static void run_page(void **state) {
    const struct page *p = *state;
    char folder[160], link[200], model[160], *text;
    size_t len;
    int n = 0, wrong = 0;
    snprintf(folder, sizeof folder, "%s/%s", dir,
             strrchr(p->path, '/') ? strrchr(p->path, '/') + 1 : p->path);
    snprintf(link, sizeof link, "%s/model", folder);
    snprintf(model, sizeof model, "%s/model", dir);
    assert_int_equal(ax_mkdir(folder), AX_OK);
    assert_int_equal(symlink(model, link), 0);
    assert_int_equal(ax_read_file(p->path, 1 << 20, &text, &len), AX_OK);
    struct transcript t = {.name = p->path, .folder = folder};
    struct shown last = {0};
    if (run_in_terminal(&t, p->set_up) != 0)
        fail_msg("%s: what it says is there cannot be made: %s", p->path, t.said.data);
    for (const char *at = strstr(text, "\n```"); at; at = strstr(at, "\n```")) {
        const char *from = after_line(at + 1), *end = strstr(from - 1, "\n```");
        assert_non_null(end);
        if (begins(at + 4, "yaml"))
            wrong += check_yaml(&t, p, from, end + 1);
        else
            wrong += check_block(&t, p, &last, from, end + 1, begins(at + 4, "sh\n"), &n);
        at = end + 4;
    }
    print_message("%s: %d commands\n", p->path, n);
    free_shown(&last);
    free_transcript(&t);
    ax_free(text);
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < sizeof not_run / sizeof *not_run; i++)
        if (strcmp(not_run[i].page, p->path) == 0 && not_run[i].met == 0)
            fail_msg("%s has no line \"%s\"", p->path, not_run[i].begins);
}

int main(void) {
    struct CMUnitTest tests[sizeof pages / sizeof *pages];
    const size_t n = sizeof pages / sizeof *pages;
    for (size_t i = 0; i < n; i++)
        tests[i] = (struct CMUnitTest){
            .name = pages[i].path, .test_func = run_page, .initial_state = (void *)&pages[i]};
    return _cmocka_run_group_tests("pages", tests, n, set_up_transcripts, remove_transcripts);
}
