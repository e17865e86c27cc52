/* Packing and order of a run, and warnings about its data. */
#include <string.h>

#include "base/log.h"
#include "cmd/train/data/data.h"
#include "data/records/format/tools.h"

/* ---- sequences ---- */

static enum ax_pack_mode strategy(const char *name) {
    return strcmp(name, "bfd") == 0         ? AX_PACK_BEST
           : strcmp(name, "bfd_split") == 0 ? AX_PACK_BEST_SPLIT
                                            : AX_PACK_WRAP;
}

static enum ax_pack_mode pack_mode(const struct ax_setup_data *d, bool eval, bool pretraining) {
    const struct ax_data_keys *k = &d->keys;
    const enum ax_pretrain_mode mode = ax_setup_pretrain_mode(k);
    if (ax_method_of(d->cfg)->task == AX_TASK_PROMPT)
        return AX_PACK_PLAIN;
    if (pretraining && mode == AX_PRETRAIN_WHOLE)
        return AX_PACK_WRAP;
    if (pretraining && mode == AX_PRETRAIN_JOIN)
        return AX_PACK_IN_ORDER;
    if (!k->packs[eval])
        return AX_PACK_PLAIN;
    if (k->packing_strategy)
        return strategy(k->packing_strategy);
    return k->packs_in_order ? AX_PACK_IN_ORDER : AX_PACK_FIT;
}

/* The length of a sequence as a multiple of sequence_len. */
static int64_t samples_per_sequence(const struct ax_data_keys *k, enum ax_pack_mode mode) {
    return mode == AX_PACK_PLAIN || k->real_batches ? 1 : k->micro_batch_size;
}

/* How the objective wants sequences; prompts are not its own, but those that are sampled from. */
static struct ax_objective order_of(const struct ax_setup_data *d) {
    return ax_method_of(d->cfg)->task == AX_TASK_PROMPT ? (struct ax_objective){0}
                                                        : d->method.objective;
}

static struct ax_loader_options loader_options(struct ax_setup_data *d, bool eval) {
    const struct ax_data_keys *k = &d->keys;
    const struct ax_objective objective = order_of(d);
    const bool pretraining = !eval && ax_setup_pretrains(d->cfg);
    const enum ax_pack_mode mode = pack_mode(d, eval, pretraining);
    const int64_t group = objective.per == AX_PER_PAIR ? 2 : 1;
    const int64_t per_sequence = samples_per_sequence(k, mode);
    const int64_t batch = objective.spills && !eval ? k->micro_batch_size / per_sequence : 1;
    struct ax_loader_options o = {
        .pack = {.mode = mode,
                 .capacity = k->sequence_len[eval] * per_sequence * group,
                 .max_docs = mode == AX_PACK_PLAIN ? group : k->bin_size,
                 .group = group,
                 .batch = batch,
                 .step = objective.spills && !eval ? batch * k->accumulation : 0},
        .shuffle = !eval && !k->in_file_order,
        .mixed =
            pretraining ? mode != AX_PACK_PLAIN && !k->separates_documents : mode == AX_PACK_WRAP,
        .labels_in_place = objective.labels_in_place,
    };
    AX_FILL(d->cfg, "", struct ax_loader_options, &o);
    if (!eval && k->group_by_length) /* in groups of 50 batches, as in transformers */
        o.by_length = 50 * k->micro_batch_size;
    return o;
}

static int64_t pad_multiple(const struct ax_data_keys *k) {
    if (!k->pad_to_sequence_len)
        return k->pad_to_multiple_of;
    if (strcmp(k->pad_to_sequence_len, "false") == 0)
        return 1;
    return ax_pack_padded(k->sequence_len[false], k->pad_to_multiple_of);
}

/* axolotl's packing counts whole steps alone; rows that are packed as by TRL are batched as any others. */
static bool packs_whole_steps(const struct ax_setup_data *d, enum ax_pack_mode mode) {
    return mode != AX_PACK_PLAIN && !d->keys.packing_strategy;
}

static void set_sizes(struct ax_setup_data *d, const struct ax_loader_options *train,
                      const struct ax_loader_options *eval) {
    const struct ax_data_keys *k = &d->keys;
    d->pack_mode[false] = train->pack.mode;
    d->pack_mode[true] = eval->pack.mode;
    d->sequence_tokens = train->pack.capacity;
    d->eval_sequence_tokens = eval->pack.capacity;
    d->sequences_per_batch = k->micro_batch_size / samples_per_sequence(k, train->pack.mode);
    d->sequences_per_step = d->sequences_per_batch * k->accumulation;
    d->pad_multiple = pad_multiple(k);
    /* groups that spill over micro-batches stay in one step */
    d->drop_last = packs_whole_steps(d, train->pack.mode) || (k->drop_last && train->pack.step > 0);
    d->drop_partial = k->drop_last && !d->drop_last;
}

enum ax_status ax_setup_data_sizes(struct ax_setup_data *d, const struct ax_config *cfg) {
    *d = (struct ax_setup_data){.cfg = cfg};
    ax_data_keys_read(&d->keys, cfg);
    AX_TRY(ax_setup_method_read(&d->method, cfg));
    const struct ax_loader_options train = loader_options(d, false);
    const struct ax_loader_options eval = loader_options(d, true);
    set_sizes(d, &train, &eval);
    return AX_OK;
}

enum ax_status ax_setup_loaders_open(struct ax_setup_data *d) {
    const struct ax_loader_options train = loader_options(d, false);
    const struct ax_loader_options eval = loader_options(d, true);
    set_sizes(d, &train, &eval);
    if (d->stream) {
        ax_stream_source(d->stream, &d->train_examples);
    } else {
        d->train_source.chunk = train.pack.chunk;
        d->train_source.shuffle = train.shuffle;
        d->train_source.seed = train.seed;
        ax_corpus_source_init(&d->train_source, &d->train, &d->train_examples);
    }
    AX_TRY(ax_loader_new(&d->train_loader, &d->train_examples, &train));
    if (d->eval.n == 0)
        return AX_OK;
    d->eval_source.chunk = eval.pack.chunk;
    ax_corpus_source_init(&d->eval_source, &d->eval, &d->eval_examples);
    return ax_loader_new(&d->eval_loader, &d->eval_examples, &eval);
}

/* ---- warnings ---- */

static enum ax_status warn_lines(const char *entry, const char *lines, ax_setup_warn *warn,
                                 void *ctx) {
    for (const char *s = lines; *s;) {
        const size_t n = strcspn(s, "\n");
        char *text;
        AX_TRY(ax_sprintf(&text, "%s: %.*s", entry, (int)n, s));
        const enum ax_status st = warn(ctx, text);
        ax_free(text);
        AX_TRY(st);
        s += n + (s[n] == '\n');
    }
    return AX_OK;
}

#define DIGITS_OF(x) #x
#define DIGITS(x)    DIGITS_OF(x)

/* One line per kind of oddity: how many records have it, and the first of them. */
static enum ax_status put_odd(struct ax_buf *out, const struct ax_examples *set) {
    static const char chat[] = "conversation has", chats[] = "conversations have",
                      record[] = "record has", records[] = "records have";
    static const struct {
        enum ax_oddity kind;
        const char *one, *many, *what;
    } kinds[] = {
        {AX_ODD_ROLE, chat, chats,
         "a role other than system, user, assistant or tool (map it with roles)"},
        {AX_ODD_START, chat, chats, "an assistant turn before any user turn"},
        {AX_ODD_TWICE, chat, chats, "two user turns in a row"},
        {AX_ODD_EMPTY, chat, chats, "an empty assistant turn"},
        {AX_ODD_FLAG, chat, chats,
         "a turn with train: false, weight: 0 or the like that is trained on all the "
         "same (with type: chat_template, message_field_training: weight leaves out what has "
         "weight: 0)"},
        {AX_ODD_THOUGHT, chat, chats,
         "answers that are trained on without their reasoning, which the chat template leaves out "
         "(many write only the last one's: let each record end with the answer to learn)"},
        {AX_ODD_CUT, "text is", "texts are",
         "longer than " DIGITS(AX_COMPLETION_EXAMPLES) " times sequence_len, and what follows is "
                                                       "left out; split such texts"},
        {AX_ODD_REST, record, records,
         "a conversation of more than two messages, of which the type reads the first two; write "
         "what precedes the answer into `prompt` and leave out `type`"},
        {AX_ODD_UNREAD, record, records,
         "a system text or earlier turns in the column system, system_prompt or history, which the "
         "type does not read; name the first by field_system of a map, or write all as messages "
         "(type: chat_template)"},
        {AX_ODD_END, record, records,
         "an answer whose end is left out, as it is longer than sequence_len with its prompt "
         "(excess_length_strategy: drop skips the record)"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct ax_oddities *o = &set->info.oddities[kinds[i].kind];
        if (o->n > 0)
            AX_TRY(ax_buf_printf(out, "%lld %s %s; the first is %s:%lld\n", (long long)o->n,
                                 o->n == 1 ? kinds[i].one : kinds[i].many, kinds[i].what,
                                 (size_t)o->file < set->n_files ? set->files[o->file] : "",
                                 (long long)o->line));
    }
    return AX_OK;
}

/* A line for each name that the user chose and that no record has, as one with a spelling mistake. */
static enum ax_status put_missing(struct ax_buf *out, const struct ax_setup_entry *e,
                                  const struct ax_examples *set) {
    static const char *const has[] = {[AX_NAME_RECORD] = "record has the column",
                                      [AX_NAME_MESSAGE] = "message has",
                                      [AX_NAME_ROLE] = "message has the role"};
    const struct ax_format_name *name;
    for (size_t i = 0; (name = ax_format_name_at(e->format, i)) != NULL; i++)
        if (set->info.oddities[AX_ODD_NAME + i].n == (int64_t)set->n)
            AX_TRY(ax_buf_printf(out, "%s: no %s \"%s\"%s\n", name->key, has[name->in], name->name,
                                 name->then ? name->then : ""));
    return AX_OK;
}

enum ax_status ax_setup_put_lost(struct ax_buf *out, const struct ax_setup_entry *e,
                                 const struct ax_examples *set) {
    const size_t before = out->len;
    const struct ax_template *t = ax_format_template(e->format);
    if (t)
        AX_TRY(ax_tools_put_lost(out, t, set->info.oddities, set->files, set->n_files));
    return out->len > before ? ax_buf_puts(out, "; " AX_TOOLS_REMEDY "\n") : AX_OK;
}

static enum ax_status put_warnings(struct ax_buf *out, const struct ax_setup_data *d,
                                   const struct ax_setup_entry *e, const struct ax_examples *set) {
    const struct ax_examples_info *i = &set->info;
    const char *eos = ax_tokenizer_special(d->tok.tokenizer, AX_EOS);
    AX_TRY(put_odd(out, set));
    if (set->n > 0)
        AX_TRY(put_missing(out, e, set));
    AX_TRY(ax_setup_put_lost(out, e, set));
    if (ax_method_of(d->cfg)->task == AX_TASK_TEXT && set->n_trained > 0 && i->ends_trained == 0)
        AX_TRY(ax_buf_printf(
            out,
            "the end-of-turn token is never trained on (%s%s appears %lld times), so the model "
            "will not learn to stop; see eot_tokens and train_on_eos\n",
            eos ? eos : "no EOS", i->ends ? "" : " or an eot_token", (long long)i->ends));
    if (i->bad.n_empty > 0)
        AX_TRY(ax_buf_printf(
            out, "%lld record%s skipped, with nothing to learn from; the first is %s\n",
            (long long)i->bad.n_empty, i->bad.n_empty == 1 ? "" : "s", i->bad.first_empty));
    if (set->n == 0 && i->bad.n_empty == 0)
        AX_TRY(ax_buf_printf(out, "%s: no records\n", set->n_files ? set->files[0] : ""));
    if (i->double_bos > 0)
        AX_TRY(ax_buf_printf(out,
                             "%lld documents begin with BOS twice: the template and the tokenizer "
                             "both add it\n",
                             (long long)i->double_bos));
    return AX_OK;
}

static enum ax_status warn_about_set(const struct ax_setup_data *d, const struct ax_setup_entry *e,
                                     const struct ax_examples *set, ax_setup_warn *warn,
                                     void *ctx) {
    struct ax_buf text = {0};
    enum ax_status st = put_warnings(&text, d, e, set);
    if (st == AX_OK && text.len > 0)
        st = warn_lines(e->path, text.data, warn, ctx);
    ax_buf_free(&text);
    return st;
}

static enum ax_status warn_forms(const struct ax_setup_entry *e, bool doubts, ax_setup_warn *warn,
                                 void *ctx) {
    struct ax_buf text = {0};
    enum ax_status st = ax_rows_put_form(e->rows, doubts, &text);
    if (st == AX_OK && text.len > 0)
        st = warn_lines(e->path, text.data, warn, ctx);
    ax_buf_free(&text);
    return st;
}

static enum ax_status warn_about(const struct ax_setup_data *d, const struct ax_setup_sets *s,
                                 ax_setup_warn *warn, void *ctx) {
    for (size_t i = 0; i < s->n; i++) {
        AX_TRY(warn_forms(&s->entries[i], true, warn, ctx));
        AX_TRY(warn_lines(s->entries[i].path, ax_format_warnings(s->entries[i].format), warn, ctx));
        if (s->sets)
            AX_TRY(warn_about_set(d, &s->entries[i], &s->sets[i], warn, ctx));
    }
    return AX_OK;
}

enum ax_status ax_setup_warn_log(void *ctx, const char *text) {
    (void)ctx;
    ax_log_warn("%s", text);
    return AX_OK;
}

enum ax_status ax_setup_data_warnings(const struct ax_setup_data *d, ax_setup_warn *warn,
                                      void *ctx) {
    AX_TRY(warn_about(d, &d->train_sets, warn, ctx));
    return warn_about(d, &d->eval_sets, warn, ctx);
}

enum ax_status ax_setup_data_forms(const struct ax_setup_data *d, ax_setup_warn *tell, void *ctx) {
    const struct ax_setup_sets *all[] = {&d->train_sets, &d->eval_sets};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < all[k]->n; i++)
            AX_TRY(warn_forms(&all[k]->entries[i], false, tell, ctx));
    return AX_OK;
}

/* ---- enough to train on ---- */

/* True if the example is what should be learned: a desirable answer, a right step. */
static bool is_wanted(const struct ax_examples *set, const struct ax_example_ref *ref,
                      enum ax_task task, int desirable) {
    const struct ax_stored *x = &set->list[ref->index];
    const uint32_t *words = ax_examples_words(set, ref->index);
    if (task == AX_TASK_UNPAIRED)
        return ax_examples_column(set, ref->index, desirable)[0] != 0;
    for (uint32_t t = 0; t < ref->n; t++)
        if (ax_word_label(x, words, t) == 1)
            return true;
    return false;
}

/* AX_ERR_DATA at `first` if no answer is desirable, or no step right. */
static enum ax_status require_labels(const struct ax_setup_data *d,
                                     const struct ax_example_ref *first) {
    const enum ax_task task = ax_method_of(d->cfg)->task;
    const struct ax_columns *columns = d->method.objective.columns;
    const struct ax_corpus *c = &d->train;
    char where[512];
    int desirable = ax_columns_count(columns) - 1;
    while (desirable >= 0 && strcmp(columns->list[desirable].name, "desirable") != 0)
        desirable--;
    if (c->n == 0 || (task != AX_TASK_STEPS && (task != AX_TASK_UNPAIRED || desirable < 0)))
        return AX_OK;
    for (size_t i = 0; i < c->n; i++)
        if (is_wanted(&c->sets[c->refs[i].set], &c->refs[i], task, desirable))
            return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: %s",
                    ax_examples_where(&c->sets[first->set], first->index, where, sizeof where),
                    task == AX_TASK_STEPS
                        ? "no step of this or any other document is right (labels)"
                        : "the answer of this and every other document is undesirable (label)");
}

static bool has_trained(const struct ax_corpus *c) {
    for (size_t i = 0; i < c->n; i++)
        if (ax_examples_trained(&c->sets[c->refs[i].set], c->refs[i].index, 0, c->refs[i].n) > 0)
            return true;
    return false;
}

/* AX_ERR_DATA where evaluations are asked for and no record is left that has one. */
static enum ax_status require_evaluation(const struct ax_setup_data *d) {
    const struct ax_corpus_report *r = &d->eval_report;
    const bool listed = d->eval_sets.n > 0;
    if (has_trained(&d->eval) || (!listed && d->keys.val_set_size <= 0))
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: no records to evaluate: %lld too long (eval_sequence_len), %lld too short "
                    "(min_sample_len), %lld without a trained token, %lld equal to others",
                    listed ? "test_datasets" : "val_set_size", (long long)r->too_long,
                    (long long)r->too_short, (long long)r->untrained + (long long)d->eval.n,
                    (long long)r->duplicates);
}

enum ax_status ax_setup_data_require(const struct ax_setup_data *d) {
    const struct ax_corpus_report *r = &d->train_report;
    const struct ax_corpus *c = &d->train;
    const enum ax_task task = ax_method_of(d->cfg)->task;
    char where[512];
    if (d->stream)
        return AX_OK;
    const struct ax_example_ref *top = c->refs; /* first in the files; the corpus may be shuffled */
    for (size_t i = 0; i < c->n; i++) {
        const struct ax_example_ref *ref = &c->refs[i];
        if (ref->set < top->set || (ref->set == top->set && ref->index < top->index))
            top = ref;
    }
    if (has_trained(c)) {
        AX_TRY(require_labels(d, top));
        return require_evaluation(d);
    }
    if (c->n > 0)
        return ax_error(AX_ERR_DATA,
                        "%s: no token of this or any other document is trained on; see "
                        "roles_to_train, roles and train_on_inputs",
                        ax_examples_where(&c->sets[top->set], top->index, where, sizeof where));
    for (size_t i = 0; i < d->train_sets.n; i++)
        if (d->train_sets.sets[i].n > 0)
            return ax_error(AX_ERR_DATA,
                            "datasets: no documents to train on: %lld too long (sequence_len "
                            "and %s), %lld too short (min_sample_len), %lld "
                            "without a trained token (%s)",
                            (long long)r->too_long,
                            task == AX_TASK_PROMPT ? "the length of an answer"
                                                   : "excess_length_strategy",
                            (long long)r->too_short, (long long)r->untrained,
                            task == AX_TASK_TEXT ? "roles_to_train" : "sequence_len");
    for (size_t i = 0; i < d->train_sets.n; i++) {
        const struct ax_bad_records *skipped = &d->train_sets.sets[i].info.bad;
        if (skipped->n_empty > 0)
            return ax_error(AX_ERR_DATA,
                            "%s: no records to train on: %lld of them %s nothing to learn from: %s",
                            d->train_sets.entries[i].path, (long long)skipped->n_empty,
                            skipped->n_empty == 1 ? "has" : "have", skipped->first_empty);
    }
    const struct ax_examples *first = &d->train_sets.sets[0];
    return ax_error(AX_ERR_DATA, "%s: %s: no records to train on; see path and split",
                    d->train_sets.entries[0].path, first->n_files ? first->files[0] : "");
}
