/* kd_teacher: the model that a distillation follows; it may be an adapter, or at a URL. */
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "cmd/api_key.h"
#include "cmd/train/setup.h"
#include "model/adapter/load.h"
#include "model/convert/base_model.h"

bool ax_train_same_folder(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        return strcmp(a, b) == 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int32_t ax_train_other_token(const struct ax_tokenizer *a, const struct ax_tokenizer *b) {
    const size_t n = ax_tokenizer_size(a), m = ax_tokenizer_size(b);
    for (int32_t id = 0; (size_t)id < n && (size_t)id < m; id++) {
        size_t x = 0, y = 0;
        const char *one = ax_tokenizer_token(a, id, &x), *other = ax_tokenizer_token(b, id, &y);
        if (one && other && (x != y || memcmp(one, other, x) != 0))
            return id;
    }
    return -1;
}

static int64_t longest_text(const struct ax_setup_data *d) {
    const int64_t own = d->keys.sequence_len[false], eval = d->keys.sequence_len[true];
    return own > eval ? own : eval;
}

/* ---- its vocabulary ---- */

#define SPANS                                                                                      \
    "With rl: distill, trl.distillation_objective: sampled_token compares texts, whatever their "  \
    "tokens"

/* How it reads the text of answers, if its tokenizer is another one. */
static enum ax_status open_reader(struct ax_train_setup *s) {
    struct ax_setup_data by = s->data;
    if (ax_setup_has_turns(s->cfg))
        return ax_config_error(s->cfg, "kd_teacher",
                               "its tokenizer is another one, which reads no answers with tools or "
                               "an environment: use a teacher with the model's, or remove these");
    AX_TRY(ax_setup_check_alike(&s->data, "a teacher that has another tokenizer"));
    s->teacher_reads = longest_text(&s->data);
    by.tok = s->teacher_tok;
    AX_TRY(ax_setup_entry_open(&s->teacher_entry, &by, "datasets", 0));
    s->teacher_reader = (struct ax_reader){.tokenizer = s->teacher_tok.tokenizer,
                                           .format = s->teacher_entry.format,
                                           .end = s->teacher_tok.eos};
    ax_log_info("kd_teacher: its tokenizer is another one: it reads answers as text, and what it "
                "says of spans is compared");
    return AX_OK;
}

static enum ax_status other_tokens(struct ax_train_setup *s, int32_t id) {
    size_t n = 0;
    const char *text = ax_tokenizer_token(s->teacher_tok.tokenizer, id, &n);
    if (!s->data.method.objective.head.distill)
        return open_reader(s);
    return ax_config_error(s->cfg, "kd_teacher",
                           "its tokenizer is another one: token %d is \"%.*s\" there, but not in "
                           "the base model's. " SPANS,
                           (int)id, (int)(n < 40 ? n : 40), text);
}

/* Equal numbers of tokens may still be other tokens. A folder without a tokenizer is believed. */
static enum ax_status check_tokens(struct ax_train_setup *s) {
    if (ax_setup_tokenizer_of(&s->teacher_tok, s->teacher) != AX_OK) {
        ax_error_clear();
        return AX_OK;
    }
    const int32_t id = ax_train_other_token(s->data.tok.tokenizer, s->teacher_tok.tokenizer);
    return id < 0 ? AX_OK : other_tokens(s, id);
}

static enum ax_status check_vocabulary(struct ax_train_setup *s) {
    const int64_t own = s->arch.vocab_size, other = s->teacher_arch.vocab_size;
    if (own == other)
        return s->planning ? AX_OK : check_tokens(s);
    if (s->data.method.objective.head.distill)
        return ax_config_error(s->cfg, "kd_teacher",
                               "it has %lld tokens, the model that is trained %lld: the two "
                               "distributions are compared token by token, so both need the same "
                               "vocabulary. " SPANS,
                               (long long)other, (long long)own);
    s->teacher_reads = longest_text(&s->data);
    if (s->planning)
        return AX_OK;
    AX_TRY(ax_setup_tokenizer_of(&s->teacher_tok, s->teacher));
    return open_reader(s);
}

static enum ax_status open_base(struct ax_train_setup *s, const char *name) {
    s->teacher_on_base = ax_train_same_folder(name, s->base_name) && !s->reinit && !s->revision;
    if (s->planning)
        return ax_base_model_arch(&s->teacher_arch, name, NULL, NULL);
    AX_TRY(ax_base_model_folder(&s->teacher, &s->teacher_use, name, NULL,
                                s->prepared ? s->prepared : "last_run_prepared"));
    AX_TRY(ax_arch_load_with(&s->teacher_arch, s->teacher, NULL));
    return ax_hf_open(&s->teacher_hf, s->teacher);
}

static enum ax_status open_teacher(struct ax_train_setup *s, const char *name) {
    char *base;
    if (!ax_peft_is_folder(name))
        return open_base(s, name);
    AX_TRY(ax_peft_open(&s->teacher_adapter, name));
    AX_TRY(ax_peft_base(&s->teacher_adapter, &base));
    const enum ax_status st = open_base(s, base);
    ax_free(base);
    AX_TRY(st);
    return ax_adapter_vocabulary(&s->teacher_arch, &s->teacher_adapter);
}

/* ---- at a URL ---- */

static enum ax_status connect(struct ax_train_setup *s) {
    struct ax_teacher_server_keys k = {0};
    char *key = NULL;
    AX_FILL(s->cfg, "", struct ax_teacher_server_keys, &k);
    AX_TRY(k.key_file ? ax_api_key_read(k.key_file, &key)
                      : ax_api_key_environment("AXTRAIN_API_KEY", &key));
    k.server.url = s->teacher_name;
    k.server.key = key;
    const struct ax_remote_teacher_options o = {.server = k.server,
                                                .model = k.model,
                                                .prompts = k.prompts,
                                                .k = s->data.method.distill.stored,
                                                .tokenizer = s->data.tok.tokenizer,
                                                .vocab = s->arch.vocab_size,
                                                .longest = longest_text(&s->data)};
    const enum ax_status st = ax_remote_teacher_open(&s->remote, &o);
    ax_free(key);
    return st;
}

static enum ax_status open_remote(struct ax_train_setup *s) {
    char where[256];
    if (s->data.method.distill.asked && s->data.method.distill.stored >= s->arch.vocab_size)
        return ax_config_error(s->cfg, "kd_loss_top_k",
                               "expected fewer than the %lld tokens of the vocabulary",
                               (long long)s->arch.vocab_size);
    if (s->planning)
        return AX_OK;
    const enum ax_status st = connect(s);
    if (st != AX_OK)
        return ax_error_prefix(st, "kd_teacher (%s)",
                               ax_config_where(s->cfg, where, sizeof where, "kd_teacher"));
    if (!s->fabric || s->fabric->rank == 0)
        ax_log_info("kd_teacher: \"%s\" at %s", ax_remote_teacher_model(s->remote),
                    s->teacher_name);
    return AX_OK;
}

/* ---- all ---- */

enum ax_status ax_train_teacher_open(struct ax_train_setup *s) {
    const char *name = s->teacher_name;
    char where[256];
    if (!name)
        return AX_OK;
    if (ax_endpoint_is_url(name))
        return open_remote(s);
    enum ax_status st = open_teacher(s, name);
    if (st == AX_OK)
        st = ax_classifier_refuse(&s->teacher_arch, name, "teach tokens");
    if (st != AX_OK)
        return ax_error_prefix(st, "kd_teacher (%s)",
                               ax_config_where(s->cfg, where, sizeof where, "kd_teacher"));
    return check_vocabulary(s);
}

void ax_train_teacher_close(struct ax_train_setup *s) {
    ax_remote_teacher_close(s->remote);
    ax_setup_entry_close(&s->teacher_entry);
    ax_setup_tokenizer_close(&s->teacher_tok);
    ax_hf_close(&s->teacher_hf);
    ax_peft_close(&s->teacher_adapter);
    ax_arch_free(&s->teacher_arch);
    ax_lock_drop(&s->teacher_use);
    ax_free(s->teacher);
}
