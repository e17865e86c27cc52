/* All of libaxtrain-cudnn.so: attention as a graph of cuDNN's frontend, whose functions open the library
 * themselves. Every function catches the frontend's exceptions. */
#include "kernels/cuda/attention/cudnn_shim.h"

#include <dlfcn.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <cudnn_frontend.h>

namespace fe = cudnn_frontend;
typedef std::shared_ptr<fe::graph::Tensor_attributes> tensor;

namespace cudnn_frontend {
void *cudnn_dlhandle;
}

/* The C++ library that is linked in wants that of glibc 2.36 for its random_device. */
extern "C" uint32_t arc4random(void) noexcept {
    uint32_t x = 0;
    (void)!getrandom(&x, sizeof x, 0);
    return x;
}

struct ax_cudnn {
    cudnnHandle_t handle = nullptr; /* none of a GPU that is only described */
    std::shared_ptr<fe::DeviceProperties> described;
    int compute_capability = 0; /* of a described one: 90 for 9.0 */
};

struct ax_cudnn_plan {
    fe::graph::Graph graph;
    struct ax_cudnn_shape shape;
};

namespace {

/* The names of a graph's tensors: those of AX_CUDNN_…, their offsets, and these. */
enum { OFFSETS = AX_CUDNN_TENSORS, LENGTHS_Q = 2 * AX_CUDNN_TENSORS, LENGTHS_K, TABLE, SINK };

template <class Body> ax_cudnn_result guarded(char *text, Body body) noexcept {
    try {
        return body();
    } catch (const std::exception &e) {
        std::snprintf(text, AX_CUDNN_TEXT, "%s", e.what());
    } catch (...) {
        std::snprintf(text, AX_CUDNN_TEXT, "unknown exception");
    }
    return AX_CUDNN_FAILED;
}

/* The frontend's result as ours. */
ax_cudnn_result told(fe::error_t e, ax_cudnn_result otherwise, char *text) {
    if (e.is_good())
        return AX_CUDNN_DONE;
    std::snprintf(text, AX_CUDNN_TEXT, "%s", e.get_message().c_str());
    return otherwise;
}

tensor list_of(fe::graph::Graph &g, int uid, int64_t n, fe::DataType_t type) {
    return g.tensor(fe::graph::Tensor_attributes()
                        .set_uid(uid)
                        .set_dim({n, 1, 1, 1})
                        .set_stride({1, 1, 1, 1})
                        .set_data_type(type));
}

/* Dimensions are [document][head][row][column], whose documents begin where the offsets say, or of a tensor
 * in blocks [block][head][row][column] (offsets: NULL). */
struct layout {
    std::vector<int64_t> dim, stride;
    fe::DataType_t type;
    tensor offsets;
};
layout layout_of(fe::graph::Graph &g, const struct ax_cudnn_shape &s, int t) {
    const bool of_keys = t == AX_CUDNN_K || t == AX_CUDNN_V || t == AX_CUDNN_DK || t == AX_CUDNN_DV;
    const bool of_values =
        t == AX_CUDNN_V || t == AX_CUDNN_DV || t == AX_CUDNN_OUT || t == AX_CUDNN_DOUT;
    const bool in_blocks = of_keys && s.block_size > 0;
    const int64_t rows = in_blocks ? s.block_size : of_keys ? s.max_k : s.max_q;
    const int64_t size = t == AX_CUDNN_LSE ? 1 : of_values ? s.size_v : s.size_qk;
    return {{in_blocks ? s.rows_k / s.block_size : s.documents, of_keys ? s.heads_k : s.heads_q,
             rows, size},
            {rows * s.stride[t], size, s.stride[t], 1},
            t == AX_CUDNN_LSE ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16,
            in_blocks ? nullptr : list_of(g, OFFSETS + t, s.documents + 1, fe::DataType_t::INT64)};
}

tensor input(fe::graph::Graph &g, const struct ax_cudnn_shape &s, int t) {
    const layout l = layout_of(g, s, t);
    tensor in = g.tensor(
        fe::graph::Tensor_attributes().set_uid(t).set_dim(l.dim).set_stride(l.stride).set_data_type(
            l.type));
    if (l.offsets)
        in->set_ragged_offset(l.offsets);
    return in;
}

void output(fe::graph::Graph &g, const struct ax_cudnn_shape &s, int t, const tensor &out) {
    const layout l = layout_of(g, s, t);
    out->set_output(true).set_uid(t).set_dim(l.dim).set_stride(l.stride).set_data_type(l.type);
    out->set_ragged_offset(l.offsets);
}

/* s = cap·tanh(s / cap). cuDNN takes either its own masks or a function of scores, which then has to mask as
 * well. */
typedef fe::graph::attn::score_modifiers::Softcap softcap;
tensor capped(const std::shared_ptr<softcap> &cap, const std::shared_ptr<fe::graph::Graph> &g,
              tensor score, const ax_cudnn_shape &s, const tensor &nq, const tensor &nk) {
    namespace mod = fe::graph::attn::score_modifiers;
    score = cap->forward(g, score, std::make_shared<fe::graph::Tensor_attributes>(s.softcap));
    score = mod::padding_mask(g, score, nk, nq);
    const std::optional<int64_t> none;
    return mod::sliding_window_mask(g, score, fe::DiagonalAlignment_t::BOTTOM_RIGHT,
                                    s.window > 0 ? s.window : none, s.causal ? 0 : none, s.max_q,
                                    s.max_k, nq, nk, nullptr, nullptr);
}

/* What forward and backward have in common. */
template <class Options> void describe(Options &o, fe::graph::Graph &g, const ax_cudnn_shape &s) {
    const tensor nq = list_of(g, LENGTHS_Q, s.documents, fe::DataType_t::INT32);
    const tensor nk = list_of(g, LENGTHS_K, s.documents, fe::DataType_t::INT32);
    o.set_attn_scale(s.scale).set_seq_len_q(nq).set_seq_len_kv(nk);
    if (s.softcap > 0) {
        const auto cap = std::make_shared<softcap>();
        o.set_score_mod([=](const std::shared_ptr<fe::graph::Graph> &graph, const tensor &score) {
            return capped(cap, graph, score, s, nq, nk);
        });
        if constexpr (std::is_same_v<Options, fe::graph::SDPA_attributes>) /* which takes masks */
            o.set_implementation(fe::AttentionImplementation_t::COMPOSITE);
        else
            o.set_score_mod_bprop(
                [=](const std::shared_ptr<fe::graph::Graph> &graph, const tensor &gradient) {
                    return cap->backward(graph, gradient,
                                         std::make_shared<fe::graph::Tensor_attributes>(s.softcap));
                });
        return;
    }
    o.set_padding_mask(true);
    if (s.causal)
        o.set_diagonal_alignment(fe::DiagonalAlignment_t::BOTTOM_RIGHT)
            .set_diagonal_band_right_bound(0);
    if (s.window > 0) /* key j > diagonal − window */
        o.set_diagonal_band_left_bound((int)s.window);
}

void describe_forward(fe::graph::Graph &g, const struct ax_cudnn_shape &s) {
    auto options = fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true);
    describe(options, g, s);
    if (s.block_size > 0) {
        const int64_t columns = s.max_k / s.block_size;
        const tensor table = g.tensor(fe::graph::Tensor_attributes()
                                          .set_uid(TABLE)
                                          .set_dim({s.documents, 1, columns, 1})
                                          .set_stride({columns, columns, 1, 1})
                                          .set_data_type(fe::DataType_t::INT32));
        options.set_paged_attention_k_table(table)
            .set_paged_attention_v_table(table)
            .set_paged_attention_max_seq_len_kv((int)s.max_k);
    }
    if (s.sink)
        options.set_sink_token(g.tensor(fe::graph::Tensor_attributes()
                                            .set_uid(SINK)
                                            .set_dim({1, s.heads_q, 1, 1})
                                            .set_stride({s.heads_q, 1, 1, 1})
                                            .set_data_type(fe::DataType_t::FLOAT)));
    auto [out, lse] =
        g.sdpa(input(g, s, AX_CUDNN_Q), input(g, s, AX_CUDNN_K), input(g, s, AX_CUDNN_V), options);
    output(g, s, AX_CUDNN_OUT, out);
    output(g, s, AX_CUDNN_LSE, lse);
}

/* p = exp(s − lse), so that a sink is in lse already. */
void describe_backward(fe::graph::Graph &g, const struct ax_cudnn_shape &s) {
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("backward")
                       .set_deterministic_algorithm(s.backward == AX_CUDNN_FIXED)
                       .set_max_total_seq_len_q(s.rows_q)
                       .set_max_total_seq_len_kv(s.rows_k);
    describe(options, g, s);
    auto [dq, dk, dv] = g.sdpa_backward(
        input(g, s, AX_CUDNN_Q), input(g, s, AX_CUDNN_K), input(g, s, AX_CUDNN_V),
        input(g, s, AX_CUDNN_OUT), input(g, s, AX_CUDNN_DOUT), input(g, s, AX_CUDNN_LSE), options);
    output(g, s, AX_CUDNN_DQ, dq);
    output(g, s, AX_CUDNN_DK, dk);
    output(g, s, AX_CUDNN_DV, dv);
}

fe::error_t build(struct ax_cudnn *c, fe::graph::Graph &g) {
    const std::vector<fe::HeurMode_t> modes = {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
    if (c->handle)
        return g.build(c->handle, modes);
    g.set_device_properties(c->described);
    return g.build(modes);
}

/* ---- the functions ---- */

/* The frontend opens CUDA's runtime by its name: one that is open already, or where the loader looks.
 * On Hopper a backward pass has the same bits each time either with a product of all lengths in memory,
 * or, from cuDNN 9.25 on, without: 0 asks for the latter. */
ax_cudnn_result open(struct ax_cudnn **out, void *function, const char *gpu, char *text) {
    return guarded(text, [&] {
        Dl_info library;
        auto c = std::make_unique<ax_cudnn>();
        setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13", 0);
        setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "0", 0);
        if (!dladdr(function, &library) ||
            !(fe::cudnn_dlhandle = dlopen(library.dli_fname, RTLD_NOW | RTLD_LOCAL)))
            throw std::runtime_error("cuDNN's file is not found again");
        if (gpu) {
            const char *at = std::strstr(gpu, "\"deviceVer\":");
            c->compute_capability = at ? std::atoi(at + std::strlen("\"deviceVer\":")) / 10 : 0;
            c->described = std::make_shared<fe::DeviceProperties>();
            const ax_cudnn_result got = told(
                c->described->deserialize({gpu, gpu + std::strlen(gpu)}), AX_CUDNN_FAILED, text);
            if (got != AX_CUDNN_DONE)
                return got;
        } else if (fe::detail::create_handle(&c->handle) != CUDNN_STATUS_SUCCESS) {
            throw std::runtime_error("cuDNN cannot use this GPU");
        }
        *out = c.release();
        return AX_CUDNN_DONE;
    });
}

void close(struct ax_cudnn *c) {
    char text[AX_CUDNN_TEXT];
    (void)guarded(text, [&] {
        if (c->handle)
            (void)fe::detail::destroy_handle(c->handle);
        delete c;
        return AX_CUDNN_DONE;
    });
}

ax_cudnn_result plan(struct ax_cudnn *c, const struct ax_cudnn_shape *shape,
                     struct ax_cudnn_plan **out, size_t *work, char *text) {
    return guarded(text, [&] {
        auto p = std::make_unique<ax_cudnn_plan>();
        int64_t bytes = 0;
        p->shape = *shape;
        if (!c->handle) /* nodes take it when they are made */
            p->graph.set_sm_version(c->compute_capability);
        p->graph.set_io_data_type(fe::DataType_t::BFLOAT16)
            .set_intermediate_data_type(fe::DataType_t::FLOAT)
            .set_compute_data_type(fe::DataType_t::FLOAT);
        if (shape->backward)
            describe_backward(p->graph, *shape);
        else
            describe_forward(p->graph, *shape);
        ax_cudnn_result got = told(build(c, p->graph), AX_CUDNN_REFUSED, text);
        if (got == AX_CUDNN_DONE)
            got = told(p->graph.get_workspace_size(bytes), AX_CUDNN_FAILED, text);
        if (got != AX_CUDNN_DONE)
            return got;
        *work = (size_t)bytes;
        *out = p.release();
        return AX_CUDNN_DONE;
    });
}

void forget(struct ax_cudnn_plan *p) {
    delete p;
}

ax_cudnn_result run(struct ax_cudnn *c, struct ax_cudnn_plan *p, const struct ax_cudnn_operands *o,
                    void *work, void *stream, char *text) {
    return guarded(text, [&] {
        std::unordered_map<int64_t, void *> at = {{LENGTHS_Q, (void *)o->lengths_q},
                                                  {LENGTHS_K, (void *)o->lengths_k}};
        for (int t = 0; t < (p->shape.backward ? AX_CUDNN_TENSORS : AX_CUDNN_DOUT); t++) {
            at[t] = o->data[t];
            at[OFFSETS + t] = (void *)o->offsets[t];
        }
        if (p->shape.sink && !p->shape.backward)
            at[SINK] = (void *)o->sink;
        if (p->shape.block_size > 0)
            at[TABLE] = (void *)o->table;
        if (fe::detail::set_stream(c->handle, (cudaStream_t)stream) != CUDNN_STATUS_SUCCESS)
            throw std::runtime_error("cuDNN does not take the stream");
        return told(p->graph.execute(c->handle, at, work), AX_CUDNN_FAILED, text);
    });
}

} // namespace

extern "C" __attribute__((visibility("default"))) const struct ax_cudnn_calls *ax_cudnn_get(void) {
    static const struct ax_cudnn_calls calls = {AX_VERSION, open, close, plan, forget, run};
    return &calls;
}
