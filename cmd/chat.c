/* `axtrain chat`: a conversation with a model, on a terminal or through pipes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/term.h"
#include "cmd/chat/chat.h"
#include "cmd/commands.h"

#define MAX_NEW_DEFAULT 1024
#define CONTEXT_DEFAULT 8192

static enum ax_status converse(struct ax_chat *c) {
    struct sigaction old;
    bool more = true;
    AX_TRY(ax_chat_open_input(c));
    if (c->is_terminal)
        puts("/help lists the commands; Ctrl-C stops a reply; Ctrl-D quits.");
    ax_chat_catch_interrupts(&old);
    enum ax_status st = ax_chat_reset(c);
    while (st == AX_OK && (st = ax_chat_read(c, &more)) == AX_OK && more) {
        if (c->line.len == 0)
            continue;
        st = c->line.data[0] == '/' && !c->is_text ? ax_chat_command(c) : ax_chat_turn(c);
    }
    sigaction(SIGINT, &old, NULL);
    if (st == AX_OK && c->is_terminal && !c->edits)
        putchar('\n');
    return st;
}

static enum ax_status converse_here(struct ax_generator *g, void *ctx) {
    struct ax_chat *c = ctx;
    g->o.ctx = c;
    g->sampler.o.temperature = c->temperature;
    c->generator = g;
    AX_TRY(ax_text_model_use(&c->model, g, c->adapter));
    return converse(c);
}

/* Without --seed, another one each time, the same on all ranks. */
static enum ax_status choose_seed(struct ax_chat *c) {
    struct ax_buf seed = {0};
    uint32_t fresh;
    if (c->a.o.seed >= 0)
        return AX_OK;
    AX_TRY(ax_random_bytes(&fresh, sizeof fresh));
    enum ax_status st = ax_buf_append(&seed, &fresh, sizeof fresh);
    if (st == AX_OK)
        st = ax_ranks_share(&c->ranks, &seed);
    if (st == AX_OK)
        memcpy(&fresh, seed.data, sizeof fresh);
    ax_buf_free(&seed);
    c->a.o.seed = fresh;
    return st;
}

/* The model is behind --url. */
static enum ax_status run_remote(struct ax_chat *c) {
    if (c->ranks.world.env.world > 1)
        return ax_error(AX_ERR_UNSUPPORTED, "chat --url is for one process");
    c->temperature = c->a.o.temperature;
    AX_TRY(ax_chat_remote_open(c));
    if (c->is_terminal)
        printf("model %s at %s\n", c->remote.name, c->remote.url);
    return converse(c);
}

static enum ax_status run_here(struct ax_chat *c) {
    AX_TRY(choose_seed(c));
    AX_TRY(ax_text_args_open(&c->model, &c->a, &c->ranks));
    AX_TRY(ax_tool_args_open(&c->tools, &c->tool_options, &c->model));
    c->adapter = c->model.adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
    if (!ax_chat_side(c)->template) { /* reports it before the weights are read */
        AX_TRY(ax_chat_add(c, "user", "", 0));
        AX_TRY(ax_chat_prompt(c));
    }
    const int64_t positions = c->model.arch.max_positions;
    const int64_t wanted = c->context > 0 ? c->context : CONTEXT_DEFAULT;
    c->context = wanted < positions ? wanted : positions;
    c->max_new = c->model.max_new > 0 ? c->model.max_new : MAX_NEW_DEFAULT;
    c->max_new = c->max_new < c->context ? c->max_new : c->context - 1;
    c->temperature = c->model.sampling.temperature;
    if (c->temperature == 0)
        c->model.sampling.temperature = 1; /* to plan for, as /temperature may ask for it */
    const bool calls = c->tools.tools != NULL;
    AX_TRY(ax_alloc(&c->tokens, (size_t)(calls ? c->context + c->max_new : c->max_new),
                    sizeof *c->tokens));
    if (calls)
        AX_TRY(ax_alloc(&c->inserted, (size_t)c->max_new, sizeof *c->inserted));
    /* prompt and reply share the context in any proportion */
    const struct ax_generate_options o = {.n_seqs = 1,
                                          .max_prompt = c->context - 1,
                                          .max_new = c->max_new,
                                          .long_prompts = calls,
                                          .token = calls ? NULL : ax_chat_on_token,
                                          .stop_now = ax_chat_interrupted,
                                          .ctx = c};
    return ax_text_model_run(&c->model, &o, false, converse_here, c);
}

static enum ax_status run(struct ax_chat *c) {
    if (c->remote.key_file && !c->remote.url)
        return ax_error(AX_ERR_CONFIG, "chat: --api-key-file needs --url");
    AX_TRY(ax_tool_args_read(&c->tool_args, &c->tool_options));
    if (c->tool_options.tools.n > 0 && c->remote.url)
        return ax_error(AX_ERR_CONFIG, "chat: --tools are for a model that is here: remove --url");
    if (c->system)
        AX_TRY(ax_buf_puts(&c->system_text, c->system));
    c->messages = json_array();
    if (!c->messages)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    return c->remote.url ? run_remote(c) : run_here(c);
}

enum ax_status ax_cmd_chat(int argc, char **argv) {
    struct ax_chat c = {.is_terminal =
                            ax_term_is_tty(STDIN_FILENO) && ax_term_is_tty(STDOUT_FILENO)};
    enum { SHARED = AX_TEXT_ARGS_COUNT + AX_TOOL_ARGS_COUNT };
    struct ax_arg args[SHARED + 4];
    const struct ax_arg own[] = {
        {"--system", AX_ARG_STRING, &c.system, 0, 0},
        {"--context", AX_ARG_INT, &c.context, 16, 1 << 24},
        {"--url", AX_ARG_STRING, &c.remote.url, 0, 0},
        {"--api-key-file", AX_ARG_STRING, &c.remote.key_file, 0, 0},
    };
    ax_text_args_table(&c.a, args);
    ax_tool_args_table(&c.tool_args, args + AX_TEXT_ARGS_COUNT);
    c.a.o.samples = true;
    c.a.o.seed = -1;
    memcpy(args + SHARED, own, sizeof own);
    const enum ax_status parsed = ax_args_parse_model(argc, argv, SHARED + 4, args, &c.a.o.model);
    const struct ax_ranks_options o = {.command = "chat",
                                       .mesh = c.a.mesh,
                                       .device = c.a.device,
                                       .one_answer = true,
                                       .argc = argc,
                                       .argv = argv};
    AX_TRY(ax_ranks_open(&c.ranks, &o, parsed));
    c.is_terminal = c.is_terminal && ax_ranks_lead(&c.ranks);
    c.edits = c.is_terminal && ax_term_has_cursor(STDOUT_FILENO);
    const enum ax_status st = run(&c);
    ax_ranks_close(&c.ranks, st);
    ax_line_edit_free(&c.edit);
    json_decref(c.messages);
    ax_buf_free(&c.system_text);
    ax_encoding_free(&c.prompt);
    ax_buf_free(&c.reply);
    ax_buf_free(&c.line);
    ax_free(c.tokens);
    ax_free(c.inserted);
    ax_text_tools_close(&c.tools);
    ax_chat_remote_close(&c.remote);
    ax_text_model_close(&c.model);
    return st;
}
