/* `axtrain chat`: a conversation, line by line. The KV cache keeps the earlier turns, so a turn
 * costs only its own tokens. Works on a terminal and through pipes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/term.h"
#include "cmd/commands.h"
#include "cmd/generate/text_model.h"

#define MAX_NEW_DEFAULT 1024
#define CONTEXT_DEFAULT 8192
#define MAX_LINE        ((size_t)1 << 20)

struct chat {
    struct ax_text_args a;
    const char *system; /* NULL: none */
    int64_t context, max_new;
    bool is_terminal;

    struct ax_text_model model;
    struct ax_generator *generator;
    int adapter; /* in use */
    json_t *messages;
    struct ax_encoding prompt;
    int32_t *tokens; /* of the reply [max_new] */
    uint64_t turn;   /* its stream of random numbers */
    struct ax_text_stream stream;
    struct ax_buf reply, line;
    size_t printed;
};

/* ---- Ctrl-C stops a reply ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

/* Without SA_RESTART, so that waiting for a line ends too. */
static void catch_interrupts(struct sigaction *old) {
    struct sigaction now = {.sa_handler = on_interrupt};
    sigemptyset(&now.sa_mask);
    sigaction(SIGINT, &now, old);
}

/* What a person can mend in the next line. */
static void tell_error(void) {
    ax_log_error("%s", ax_error_text());
    ax_error_clear();
}

/* ---- messages ---- */

static enum ax_status add_message(struct chat *c, const char *role, const char *text, size_t len) {
    json_t *m = json_pack("{ss ss%}", "role", role, "content", text, len);
    if (!m)
        return ax_error(AX_ERR_DATA, "the line is not UTF-8 text");
    if (json_array_append_new(c->messages, m) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    return AX_OK;
}

static enum ax_status reset(struct chat *c) {
    json_array_clear(c->messages);
    return c->system ? add_message(c, "system", c->system, strlen(c->system)) : AX_OK;
}

static void drop_last(struct chat *c) {
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* ---- a turn ---- */

static enum ax_status show(struct chat *c) {
    if (c->reply.len > c->printed)
        fwrite(c->reply.data + c->printed, 1, c->reply.len - c->printed, stdout);
    c->printed = c->reply.len;
    if (fflush(stdout) != 0 || ferror(stdout))
        return ax_error(AX_ERR_IO, "standard output: %m");
    return AX_OK;
}

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct chat *c = ctx;
    AX_TRY(ax_text_stream_step(&c->stream, s->tokens[s->n_new - 1], &c->reply));
    *stop = c->stream.stopped || interrupted;
    return show(c);
}

static const struct ax_text_side *side(const struct chat *c) {
    return ax_text_model_side(&c->model, c->adapter);
}

/* The conversation as it stands must leave room for a reply. */
static enum ax_status render(struct chat *c) {
    c->prompt.n = 0;
    AX_TRY(ax_text_side_encode_chat(side(c), c->messages, &c->prompt));
    if ((int64_t)c->prompt.n < c->context)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "the conversation has %zu tokens, but only %lld fit; /reset starts a new one",
                    c->prompt.n, (long long)c->context);
}

static enum ax_status reply(struct chat *c, struct ax_generator *g) {
    const int64_t room = c->context - (int64_t)c->prompt.n;
    struct ax_sequence s = {.n_prompt = (int64_t)c->prompt.n,
                            .prompt = c->prompt.ids,
                            .max_new = room < c->max_new ? room : c->max_new,
                            .stream = c->turn++,
                            .tokens = c->tokens};
    c->reply.len = c->printed = 0;
    interrupted = 0;
    AX_TRY(ax_text_stream_open(&c->stream, side(c)->tokenizer, &c->model.stop_strings));
    enum ax_status st = ax_generate(g, 1, &s);
    if (st == AX_OK)
        st = ax_text_stream_finish(&c->stream, &c->reply);
    ax_text_stream_close(&c->stream);
    AX_TRY(st);
    AX_TRY(show(c));
    if (s.finish == AX_FINISH_LENGTH)
        fputs(c->is_terminal ? "\n[cut off at the token limit]" : "", stdout);
    puts(interrupted ? "\n[stopped]" : "");
    interrupted = 0;
    return add_message(c, "assistant", c->reply.data ? c->reply.data : "", c->reply.len);
}

/* What a person can mend is told and the conversation goes on as it was. */
static enum ax_status turn(struct chat *c, struct ax_generator *g) {
    enum ax_status st = add_message(c, "user", c->line.data, c->line.len);
    if (st == AX_OK && (st = render(c)) != AX_OK)
        drop_last(c);
    if (st == AX_OK)
        return reply(c, g);
    if (st != AX_ERR_DATA)
        return st;
    tell_error();
    return AX_OK;
}

/* ---- commands ---- */

static enum ax_status save(struct chat *c, const char *path) {
    json_t *row = json_pack("{sO}", "messages", c->messages);
    char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    struct ax_buf line = {0};
    enum ax_status st = ax_buf_puts(&line, text);
    if (st == AX_OK)
        st = ax_buf_puts(&line, "\n");
    if (st == AX_OK)
        st = ax_write_file_atomic(path, line.data, line.len);
    if (st == AX_OK)
        printf("saved to %s\n", path);
    ax_buf_free(&line);
    ax_free_hook(text);
    return st;
}

static enum ax_status on_save(struct chat *c, const char *arg) {
    if (!*arg)
        puts("/save needs a file name");
    else if (save(c, arg) != AX_OK)
        tell_error();
    return AX_OK;
}

static enum ax_status show_adapters(const struct chat *c) {
    struct ax_buf text = {0};
    AX_TRY(ax_adapters_list(&c->model.adapters, &text));
    printf("%s; in use: %s\n", text.data, ax_adapters_name(&c->model.adapters, c->adapter));
    ax_buf_free(&text);
    return AX_OK;
}

/* The conversation stays, and the next reply is another adapter's. */
static enum ax_status on_adapter(struct chat *c, const char *arg) {
    int which;
    if (*arg && ax_adapters_find(&c->model.adapters, arg, &which) != AX_OK) {
        tell_error();
        return AX_OK;
    }
    if (*arg) {
        AX_TRY(ax_text_model_use(&c->model, c->generator, which));
        c->adapter = which;
    }
    return show_adapters(c);
}

static enum ax_status on_reset(struct chat *c, const char *arg) {
    (void)arg;
    puts("a new conversation");
    return reset(c);
}

/* The system message is the first one, so it begins a new conversation. */
static enum ax_status on_system(struct chat *c, const char *arg) {
    static char kept[4096];
    if (strlen(arg) >= sizeof kept) {
        printf("/system accepts at most %zu bytes\n", sizeof kept - 1);
        return AX_OK;
    }
    snprintf(kept, sizeof kept, "%s", arg);
    c->system = *kept ? kept : NULL;
    return on_reset(c, "");
}

static enum ax_status on_help(struct chat *c, const char *arg);

static const struct {
    const char *name, *what;
    enum ax_status (*run)(struct chat *c, const char *arg);
} commands[] = {
    {"/reset", "start a new conversation", on_reset},
    {"/system TEXT", "set the system message (no TEXT: remove it) and start a new conversation",
     on_system},
    {"/adapter NAME", "switch to an adapter or to base; without NAME, list them", on_adapter},
    {"/save FILE", "save the conversation as one line of JSON training data", on_save},
    {"/help", "show this list", on_help},
};

static enum ax_status on_help(struct chat *c, const char *arg) {
    (void)c;
    (void)arg;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        printf("  %-14s %s\n", commands[i].name, commands[i].what);
    puts("  Ctrl-C         stop the reply\n  Ctrl-D         quit");
    return AX_OK;
}

static enum ax_status run_command(struct chat *c, const char *line) {
    const size_t n = strcspn(line, " ");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcspn(commands[i].name, " ") == n && strncmp(commands[i].name, line, n) == 0)
            return commands[i].run(c, line + n + strspn(line + n, " "));
    printf("unknown command %.*s\n", (int)n, line);
    return on_help(c, "");
}

/* ---- the loop ---- */

/* The next line into c->line; *more = false at the end of input. A Ctrl-C empties the line. */
static enum ax_status read_line(struct chat *c, bool *more) {
    char piece[4096];
    c->line.len = 0;
    *more = true;
    if (c->is_terminal)
        fputs("> ", stdout);
    fflush(stdout);
    for (;;) {
        errno = 0;
        if (!fgets(piece, sizeof piece, stdin)) {
            const bool again = ferror(stdin) && errno == EINTR;
            clearerr(stdin);
            if (!again) {
                *more = c->line.len > 0;
                return AX_OK;
            }
            c->line.len = 0;
            if (c->is_terminal)
                fputs("\n(Ctrl-D quits)\n> ", stdout);
            fflush(stdout);
            continue;
        }
        const size_t n = strlen(piece);
        const bool whole = n > 0 && piece[n - 1] == '\n';
        AX_TRY(ax_buf_append(&c->line, piece, whole ? n - 1 : n));
        if (whole)
            return AX_OK;
        if (c->line.len > MAX_LINE)
            return ax_error(AX_ERR_DATA, "a line is longer than %zu bytes", MAX_LINE);
    }
}

static enum ax_status converse(struct ax_generator *g, void *ctx) {
    struct chat *c = ctx;
    struct sigaction old;
    bool more = true;
    g->o.ctx = c;
    c->generator = g;
    AX_TRY(ax_text_model_use(&c->model, g, c->adapter));
    if (c->is_terminal)
        puts("/help lists the commands; Ctrl-C stops a reply; Ctrl-D quits.");
    catch_interrupts(&old);
    enum ax_status st = reset(c);
    while (st == AX_OK && (st = read_line(c, &more)) == AX_OK && more) {
        if (c->line.len == 0)
            continue;
        st = c->line.data[0] == '/' ? run_command(c, c->line.data) : turn(c, g);
    }
    sigaction(SIGINT, &old, NULL);
    if (st == AX_OK && c->is_terminal)
        putchar('\n');
    return st;
}

static enum ax_status run(struct chat *c) {
    AX_TRY(ax_text_model_open(&c->model, &c->a));
    c->messages = json_array();
    if (!c->messages)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    c->adapter = c->model.adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
    if (!side(c)->template) { /* says so before the weights are read */
        AX_TRY(add_message(c, "user", "", 0));
        AX_TRY(render(c));
    }
    const int64_t positions = c->model.arch.max_positions;
    const int64_t wanted = c->context > 0 ? c->context : CONTEXT_DEFAULT;
    c->context = wanted < positions ? wanted : positions;
    c->max_new = c->model.max_new > 0 ? c->model.max_new : MAX_NEW_DEFAULT;
    c->max_new = c->max_new < c->context ? c->max_new : c->context - 1;
    AX_TRY(ax_alloc(&c->tokens, (size_t)c->max_new, sizeof *c->tokens));
    /* prompt and reply share the context, whatever each takes of it */
    const struct ax_generate_options o = {.n_seqs = 1,
                                          .max_prompt = c->context - 1,
                                          .max_new = c->max_new,
                                          .token = on_token,
                                          .ctx = c};
    return ax_text_model_run(&c->model, &o, false, converse, c);
}

enum ax_status ax_cmd_chat(int argc, char **argv) {
    struct chat c = {.is_terminal = ax_term_is_tty(STDIN_FILENO) && ax_term_is_tty(STDOUT_FILENO)};
    struct ax_arg args[AX_TEXT_ARGS_COUNT + 2];
    const struct ax_arg own[] = {
        {"--system", AX_ARG_STRING, &c.system, 0, 0},
        {"--context", AX_ARG_INT, &c.context, 16, 1 << 24},
    };
    ax_text_args_table(&c.a, args);
    memcpy(args + AX_TEXT_ARGS_COUNT, own, sizeof own);
    AX_TRY(ax_args_parse_model(argc, argv, AX_TEXT_ARGS_COUNT + 2, args, &c.a.model));
    const enum ax_status st = run(&c);
    json_decref(c.messages);
    ax_encoding_free(&c.prompt);
    ax_buf_free(&c.reply);
    ax_buf_free(&c.line);
    ax_free(c.tokens);
    ax_text_model_close(&c.model);
    return st;
}
