/* `axtrain generate`: prompts in, the model's continuations out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/term.h"
#include "cmd/commands.h"
#include "cmd/generate/turns.h"
#include "optim/evaluate/score/best_of.h"

#define MAX_NEW_DEFAULT 256
#define MAX_SAMPLES     4096
#define PIECE           16 /* sequences per lane */

/* An answer: sample s of prompt p is number p·samples + s. */
struct answer {
    const struct ax_sequence *seq;       /* NULL with tools */
    const struct ax_turns_answer *turns; /* with tools, else NULL */
    struct ax_text_stream stream;
    struct ax_buf text;   /* with tools, that of the last turn */
    struct ax_buf turned; /* with tools: all turns, for people */
    size_t printed;       /* bytes already printed */
    bool done;
};

struct generate {
    struct ax_text_args a;
    struct ax_tool_args tool_args;
    struct ax_text_tools_options tool_options;
    struct ax_ranks ranks;
    struct ax_prompts_source source;
    struct ax_buf input; /* standard input, if it is the prompt, or the records */
    const char *out;     /* -o, which standard output becomes; NULL: as it is */
    int64_t batch, samples;
    bool json;
    struct ax_best_of_args best_args; /* all answers are scored, one per prompt is printed */
    struct ax_best_of best;

    struct ax_text_model model;
    struct ax_prompts prompts;
    int64_t max_new, n;             /* answers */
    struct ax_sequence *seqs;       /* [n], grouped by adapter; NULL with tools */
    struct ax_generate_turns turns; /* with tools: likewise */
    int64_t *number;                /* [n] the answer of each sequence */
    struct answer *answers;         /* [n] */
    int32_t *tokens;                /* [n][max_new] */
    double *logprobs;               /* [n][max_new]; NULL without --json */
    int64_t next;                   /* the next to print: answers are printed in order */
    bool left;                      /* by the reader of standard output */
    struct ax_generate_counters counters;
};

/* ---- output ---- */

static const struct ax_prompt *prompt_of(const struct generate *g, int64_t i) {
    return &g->prompts.list[i / g->samples];
}

/* NULL if there are no adapters. */
static const char *adapter_of(const struct generate *g, int64_t i) {
    return g->model.adapters.n > 0 ? ax_adapters_name(&g->model.adapters, prompt_of(g, i)->adapter)
                                   : NULL;
}

/* The score of answer i, and those of all answers to its prompt. */
static void add_scores(const struct generate *g, int64_t i, json_t *row) {
    json_t *list = json_array();
    const int64_t first = i - i % g->samples;
    for (int64_t k = first; k < first + g->samples; k++)
        json_array_append_new(list, ax_json_number(g->best.scores[k]));
    json_object_set_new(row, "score", ax_json_number(g->best.scores[i]));
    json_object_set_new(row, "scores", list);
}

/* What --json says of any answer. */
struct summary {
    int64_t tokens; /* sampled ones */
    double logprob;
    const char *finish;
};

static struct summary summarize(const struct answer *a) {
    const struct ax_sequence *s = a->seq;
    struct summary v = {.tokens = a->turns ? ax_turns_sampled(a->turns) : s->n_new};
    const int64_t n = a->turns ? a->turns->episode.n : s->n_new;
    for (int64_t k = 0; k < n; k++)
        v.logprob += a->turns ? a->turns->logprobs[k] : s->logprobs[k];
    v.finish = a->turns            ? ax_generate_turns_finish(a->turns)
               : a->stream.stopped ? "stop"
                                   : ax_finish_name(s->finish);
    return v;
}

static enum ax_status print_json(const struct generate *g, int64_t i) {
    const struct answer *a = &g->answers[i];
    const struct ax_prompt *p = prompt_of(g, i);
    const struct summary v = summarize(a);
    json_t *row = json_pack("{sI}", "row", (json_int_t)p->row);
    json_t *own =
        json_pack("{ss* sI ss# sI sI ss so}", "adapter", adapter_of(g, i), "sample",
                  (json_int_t)(i % g->samples), "text", a->text.data ? a->text.data : "",
                  (int)a->text.len, "prompt_tokens", (json_int_t)p->n, "tokens",
                  (json_int_t)v.tokens, "finish", v.finish, "logprob", ax_json_number(v.logprob));
    if (json_object_update(row, p->given) != 0 || json_object_update(row, own) != 0 ||
        (a->turns && !ax_generate_turns_put_json(row, &g->turns, a->turns, p))) {
        json_decref(row);
        row = NULL;
    }
    json_decref(own);
    if (row && g->best.scores)
        add_scores(g, i, row);
    char *line = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    if (!line)
        return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
    puts(line);
    ax_free_hook(line);
    return AX_OK;
}

/* `left` ends as an error, which `run` takes back: nobody would read the other answers. */
static enum ax_status flushed(struct generate *g) {
    const enum ax_status st = ax_flush_stdout();
    g->left = g->ranks.world.fabric == NULL && ax_stdout_is_left();
    if (st == AX_OK && g->left)
        return ax_error(AX_ERR_IO, "standard output: its reader has gone");
    return st == AX_OK || !g->out ? st : ax_error_prefix(st, "%s", g->out);
}

static void print_head(const struct generate *g, int64_t i) {
    const char *adapter = adapter_of(g, i);
    printf("=== prompt %lld, ", (long long)prompt_of(g, i)->row + 1);
    if (adapter)
        printf("adapter %s, ", adapter);
    printf("sample %lld", (long long)(i % g->samples) + 1);
    if (g->best.scores && isfinite(g->best.scores[i]))
        printf(", score %.6g", g->best.scores[i]);
    printf(" ===\n");
}

/* What people see of it, with a line feed to come. */
static const struct ax_buf *shown(const struct answer *a) {
    return a->turns ? &a->turned : &a->text;
}

static enum ax_status print_rest(struct answer *a) {
    const struct ax_buf *text = shown(a);
    if (text->len > a->printed)
        AX_TRY(ax_term_print(text->data + a->printed, text->len - a->printed));
    a->printed = text->len;
    if (a->done)
        putchar('\n');
    return AX_OK;
}

/* Prints the new part of the current answer, then complete ones that follow it. */
static enum ax_status print(struct generate *g) {
    while (g->next < g->n) {
        struct answer *a = &g->answers[g->next];
        const bool begins = a->printed == 0;
        if (g->json && !a->done)
            break;
        if (g->json) {
            AX_TRY(print_json(g, g->next));
        } else if (shown(a)->len > a->printed || a->done) {
            if (begins && g->n > 1)
                print_head(g, g->next);
            AX_TRY(print_rest(a));
        }
        if (!a->done)
            break;
        g->next++;
    }
    return flushed(g);
}

/* ---- callbacks of the generator ---- */

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct generate *g = ctx;
    struct answer *a = &g->answers[g->number[s - g->seqs]];
    AX_TRY(ax_text_stream_step(&a->stream, s->tokens[s->n_new - 1], &a->text));
    *stop = a->stream.stopped;
    const bool now = g->answers + g->next == a && !g->json && g->best_args.n == 0;
    return now ? print(g) : AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct generate *g = ctx;
    struct answer *a = &g->answers[g->number[s - g->seqs]];
    AX_TRY(ax_text_stream_finish(&a->stream, &a->text));
    a->done = true;
    return g->best_args.n == 0 ? print(g) : AX_OK;
}

/* Answers [from, from + n) in the order of sequences, with tools. */
static enum ax_status take_turns(struct generate *g, struct ax_generator *d, int64_t from,
                                 int64_t n) {
    bool stopped = false;
    AX_TRY(ax_turns_take(d, g->turns.tools.tools, NULL, n, g->turns.list + from, &stopped));
    for (int64_t k = from; k < from + n; k++) {
        struct answer *a = &g->answers[g->number[k]];
        const json_t *messages = a->turns->episode.messages;
        AX_TRY(ax_buf_puts(&a->text, ax_episode_last(messages)));
        AX_TRY(ax_generate_turns_show(&a->turned, messages));
        while (a->turned.len > 0 && a->turned.data[a->turned.len - 1] == '\n')
            a->turned.len--;
        a->done = true;
    }
    return g->best_args.n == 0 ? print(g) : AX_OK;
}

/* Generates the answers of one adapter after the other. */
static enum ax_status generate_all(struct generate *g, struct ax_generator *d) {
    /* data ranks exchange and print their answers after every `most` sequences, as turns with tools are */
    const int64_t ranks = d->model->rt->mesh.size[AX_ROLE_BATCH];
    const bool turns = g->turns.n > 0;
    const int64_t most = ranks > 1 || turns ? ranks * PIECE * d->o.n_seqs : g->n;
    for (int64_t from = 0, to; from < g->n; from = to) {
        const int adapter = prompt_of(g, g->number[from])->adapter;
        for (to = from; to < g->n && prompt_of(g, g->number[to])->adapter == adapter;)
            to++;
        AX_TRY(ax_text_model_use(&g->model, d, adapter));
        for (int64_t at = from; at < to; at += most) {
            const int64_t n = to - at < most ? to - at : most;
            AX_TRY(turns ? take_turns(g, d, at, n) : ax_generate(d, n, g->seqs + at));
        }
    }
    return AX_OK;
}

static enum ax_status body(struct ax_generator *d, void *ctx) {
    struct generate *g = ctx;
    const enum ax_status st = generate_all(g, d);
    g->counters = d->counters;
    return st;
}

static void log_speed(const struct generate *g) {
    const struct ax_generate_counters *c = &g->counters;
    ax_log_info("generated answers=%lld tokens=%lld prompt_tokens=%lld shared_tokens=%lld "
                "prefill_tokens_per_second=%.0f decode_tokens_per_second=%.1f",
                (long long)g->n, (long long)c->tokens, (long long)c->prompt_tokens,
                (long long)c->shared_tokens,
                c->prompt_seconds > 0 ? (double)c->prompt_tokens / c->prompt_seconds : 0,
                c->decode_seconds > 0 ? (double)c->decode_tokens / c->decode_seconds : 0);
    if (g->model.drafts)
        ax_log_info("passes=%lld drafts=%lld accepted=%lld", (long long)c->passes,
                    (long long)c->drafts, (long long)c->accepted);
}

/* ---- the best of several ---- */

/* Opens the scorer, and finds out whether it reads the prompts, before anything is generated. */
static enum ax_status open_best(struct generate *g) {
    struct ax_sampling *s = &g->model.sampling;
    const struct ax_text_scorer_options o = {.dtype = g->model.dtype, .runtime = g->model.runtime};
    if (g->best_args.n == 0)
        return AX_OK;
    if (g->a.o.temperature == 0)
        return ax_error(AX_ERR_CONFIG, "--temperature: at 0 all answers to a prompt are equal; "
                                       "remove --best-of");
    s->temperature = s->temperature > 0 ? s->temperature : 1;
    AX_TRY(ax_best_of_open(&g->best, &g->best_args, &o));
    for (int64_t i = 0; i < g->prompts.n; i++) {
        const json_t *tools = g->prompts.list[i].tools;
        json_t **asked = &g->prompts.list[i].asked, *read;
        AX_TRY(ax_best_of_prompt(&g->best, *asked, tools, &read));
        json_decref(*asked);
        *asked = read;
    }
    return AX_OK;
}

static enum ax_status print_best(struct generate *g) {
    if (g->best_args.n == 0)
        return AX_OK;
    ax_hf_close(&g->model.hf); /* the scorer's turn */
    for (int64_t i = 0; i < g->n; i++) {
        const struct ax_buf *text = &g->answers[i].text;
        AX_TRY(ax_best_of_add(&g->best, prompt_of(g, i)->asked, text->data ? text->data : "",
                              text->len));
    }
    AX_TRY(ax_best_of_run(&g->best));
    for (int64_t first = 0; first < g->n; first += g->samples) {
        const int64_t i =
            first + (int64_t)ax_best_of_choose(g->best.scores + first, (size_t)g->samples);
        if (g->json) {
            AX_TRY(print_json(g, i));
            continue;
        }
        print_head(g, i);
        AX_TRY(print_rest(&g->answers[i]));
    }
    return flushed(g);
}

/* ---- from options to sequences ---- */

static enum ax_status refuse_longest(const struct ax_prompts *prompts, int64_t positions) {
    char row[48] = "";
    for (int64_t i = 0; prompts->rows > 1 && !row[0]; i++)
        if (prompts->list[i].n == prompts->longest)
            snprintf(row, sizeof row, ", row %lld (from 0),", (long long)prompts->list[i].row);
    return ax_error(AX_ERR_DATA,
                    "the longest prompt%s has %lld tokens, but the model has only %lld positions",
                    row, (long long)prompts->longest, (long long)positions);
}

static enum ax_status choose_length(struct generate *g) {
    const int64_t positions = g->model.arch.max_positions;
    if (g->prompts.longest >= positions)
        return refuse_longest(&g->prompts, positions);
    g->max_new = g->model.max_new > 0 ? g->model.max_new : MAX_NEW_DEFAULT;
    g->max_new = g->max_new < positions ? g->max_new : positions - 1;
    return AX_OK;
}

/* Tokens of a lane, which is no longer than the model's positions. */
static int64_t lane_of(const struct generate *g) {
    const int64_t most = g->prompts.longest + g->max_new;
    return most < g->model.arch.max_positions ? most : g->model.arch.max_positions;
}

/* Makes answer i sequence k. Its stream is the same as if its adapter were used alone. */
static enum ax_status make_sequence(struct generate *g, int64_t i, int64_t k) {
    const struct ax_prompt *p = prompt_of(g, i);
    struct answer *a = &g->answers[i];
    g->number[k] = i;
    if (g->turns.n > 0) {
        ax_generate_turns_ask(&g->turns, k, &g->model, &g->prompts, p,
                              p->row * g->samples + i % g->samples);
        a->turns = &g->turns.list[k];
        return AX_OK;
    }
    const int64_t room = lane_of(g) - p->n; /* another prompt's length shortens no answer */
    g->seqs[k] = (struct ax_sequence){
        .n_prompt = p->n,
        .max_new = room < g->max_new ? room : g->max_new,
        .prompt = g->prompts.ids.ids + p->first,
        .stream = (uint64_t)(p->row * g->samples + i % g->samples),
        .tokens = g->tokens + i * g->max_new,
        .logprobs = g->json ? g->logprobs + i * g->max_new : NULL,
    };
    a->seq = &g->seqs[k];
    const struct ax_text_side *side = ax_text_model_side(&g->model, p->adapter);
    return ax_text_stream_open(&a->stream, side->tokenizer, g->model.stop_strings.text,
                               g->model.stop_strings.n);
}

static enum ax_status make_sequences(struct generate *g) {
    g->n = g->prompts.n * g->samples;
    const size_t n = (size_t)g->n;
    size_t all;
    if (ax_mul_overflow(n, (size_t)g->max_new, &all))
        return ax_error(AX_ERR_CONFIG, "too many answers: %lld", (long long)g->n);
    AX_TRY(ax_alloc(&g->number, n, sizeof *g->number));
    AX_TRY(ax_alloc(&g->answers, n, sizeof *g->answers));
    if (g->turns.tools.tools) {
        AX_TRY(ax_generate_turns_create(&g->turns, g->n, g->prompts.longest, g->max_new, g->json));
    } else {
        AX_TRY(ax_alloc(&g->seqs, n, sizeof *g->seqs));
        AX_TRY(ax_alloc(&g->tokens, all, sizeof *g->tokens));
        if (g->json)
            AX_TRY(ax_alloc(&g->logprobs, all, sizeof *g->logprobs));
    }
    int64_t k = 0;
    for (int adapter = AX_ADAPTER_NONE; adapter < g->model.adapters.n; adapter++)
        for (int64_t i = 0; i < g->n; i++)
            if (prompt_of(g, i)->adapter == adapter)
                AX_TRY(make_sequence(g, i, k++));
    return AX_OK;
}

static enum ax_status read_input(struct generate *g) {
    const bool piped = g->source.file && strcmp(g->source.file, "-") == 0;
    g->source.len = g->source.text ? strlen(g->source.text) : 0;
    if (g->source.text || (g->source.file && !piped))
        return AX_OK;
    g->source.file = piped ? "standard input" : NULL;
    if (ax_ranks_lead(&g->ranks))
        AX_TRY(ax_prompts_read_input(&g->input));
    AX_TRY(ax_ranks_share(&g->ranks, &g->input));
    g->source.text = g->input.data ? g->input.data : "";
    g->source.len = g->input.len;
    return AX_OK;
}

/* Late, so that a mistake elsewhere leaves the file as it was. */
static enum ax_status open_output(struct generate *g) {
    if (!g->out || !ax_ranks_lead(&g->ranks))
        return AX_OK;
    return freopen(g->out, "w", stdout) ? AX_OK : ax_error(AX_ERR_IO, "%s: %m", g->out);
}

static void close_all(struct generate *g) {
    for (int64_t i = 0; g->answers && i < g->n; i++) {
        ax_text_stream_close(&g->answers[i].stream);
        ax_buf_free(&g->answers[i].text);
        ax_buf_free(&g->answers[i].turned);
    }
    ax_generate_turns_close(&g->turns);
    ax_free(g->answers);
    ax_free(g->number);
    ax_free(g->seqs);
    ax_free(g->tokens);
    ax_free(g->logprobs);
    ax_best_of_close(&g->best);
    ax_prompts_free(&g->prompts);
    ax_buf_free(&g->input);
    ax_text_model_close(&g->model);
}

static enum ax_status check(struct generate *g) {
    AX_TRY(ax_best_of_args_check(&g->best_args, "generate"));
    if (g->best_args.n > 0 && g->samples > 1)
        return ax_error(AX_ERR_CONFIG, "generate: --best-of N samples N answers: remove --n");
    AX_TRY(ax_tool_args_read(&g->tool_args, &g->tool_options));
    g->source.keep = g->best_args.n > 0 || g->tool_args.tools.n > 0;
    g->source.chat = g->source.chat || g->tool_args.tools.n > 0;
    g->samples = g->best_args.n > 0 ? g->best_args.n : g->samples;
    if (g->source.text && g->source.file)
        return ax_error(AX_ERR_CONFIG, "generate: give either --prompt or --input");
    if (g->source.system && !g->source.chat && !g->source.file)
        return ax_error(AX_ERR_CONFIG, "generate: --system needs --chat");
    if (g->source.each && g->a.o.adapters.n == 0)
        return ax_error(AX_ERR_CONFIG, "generate: --each-adapter needs --adapter");
    return AX_OK;
}

static enum ax_status run(struct generate *g) {
    AX_TRY(check(g));
    AX_TRY(ax_text_args_open(&g->model, &g->a, &g->ranks));
    AX_TRY(ax_tool_args_open(&g->turns.tools, &g->tool_options, &g->model));
    if (g->turns.tools.tools)
        g->source.tools = (json_t *)(uintptr_t)ax_tools_definitions(g->turns.tools.tools);
    AX_TRY(read_input(g));
    AX_TRY(ax_prompts_read(&g->prompts, &g->model, &g->source));
    AX_TRY(choose_length(g));
    AX_TRY(open_best(g));
    AX_TRY(make_sequences(g));
    AX_TRY(open_output(g));
    const struct ax_generate_options o = {
        .n_seqs = (int)(g->n < g->batch ? g->n : g->batch),
        .max_prompt = lane_of(g) - g->max_new,
        .max_new = g->max_new,
        .long_prompts = g->turns.n > 0 || g->prompts.longest + g->max_new > lane_of(g),
        .token = g->turns.n > 0 ? NULL : on_token,
        .done = g->turns.n > 0 ? NULL : on_done,
        .ctx = g,
    };
    const enum ax_status st = ax_text_model_run(&g->model, &o, g->json, body, g);
    if (g->left) {
        ax_error_clear();
        return AX_OK;
    }
    AX_TRY(st);
    log_speed(g);
    return print_best(g);
}

enum ax_status ax_cmd_generate(int argc, char **argv) {
    struct generate g = {.batch = 16, .samples = 1};
    const struct ax_arg own[] = {
        {"--prompt", AX_ARG_STRING, &g.source.text, 0, 0},
        {"--input", AX_ARG_STRING, &g.source.file, 0, 0},
        {"--chat", AX_ARG_FLAG, &g.source.chat, 0, 0},
        {"--system", AX_ARG_STRING, &g.source.system, 0, 0},
        {"--each-adapter", AX_ARG_FLAG, &g.source.each, 0, 0},
        {"--n", AX_ARG_INT, &g.samples, 1, MAX_SAMPLES},
        {"--batch", AX_ARG_INT, &g.batch, 1, 4096},
        {"--drafts", AX_ARG_FLAG, &g.a.o.drafts, 0, 0},
        {"--json", AX_ARG_FLAG, &g.json, 0, 0},
        {"--best-of", AX_ARG_INT, &g.best_args.n, 2, AX_BEST_OF_MAX},
        {"--scorer", AX_ARG_STRING, &g.best_args.scorer, 0, 0},
        {"--score-by", AX_ARG_STRING, &g.best_args.by, 0, 0},
        {"-o", AX_ARG_STRING, &g.out, 0, 0},
    };
    enum { SHARED = AX_TEXT_ARGS_COUNT + AX_TOOL_ARGS_COUNT };
    struct ax_arg args[SHARED + sizeof own / sizeof *own];
    ax_text_args_table(&g.a, args);
    ax_tool_args_table(&g.tool_args, args + AX_TEXT_ARGS_COUNT);
    memcpy(args + SHARED, own, sizeof own);
    const enum ax_status parsed =
        ax_args_parse_model(argc, argv, sizeof args / sizeof *args, args, &g.a.o.model);
    const struct ax_ranks_options o = {
        .command = "generate", .mesh = g.a.mesh, .device = g.a.device, .argc = argc, .argv = argv};
    AX_TRY(ax_ranks_open(&g.ranks, &o, parsed));
    const enum ax_status st = run(&g);
    ax_ranks_close(&g.ranks, st);
    close_all(&g);
    return st;
}
