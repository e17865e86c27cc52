/* A stand-in for cuBLASLt: products by the host, when the stream gets there, summed in F32 by one of
 * several algorithms, which round differently: in one sum over k, or in several that take terms in turn.
 * The first is the heuristic's favorite, AXTRAIN_EMULATED_FASTEST=N says which takes half the time. It checks
 * what the library would check or silently need: matching layouts, matrices within the device's memory, the alignments that
 * were promised to the heuristic, a workspace of its size, whose ends are destroyed; what the documentation of
 * cublasLtMatmul asks for: its table of types, in place only with one layout, of FP8 aᵀ·b, sizes and addresses that are
 * multiples of 16, and scales, of rows only for A and B alike and on compute capability 9.0; an algorithm takes other
 * sizes only of its class; and what has not run yet is loaded, which a capture forbids. tests/cuda/test_cublaslt has a
 * case of each. */
#include "kernels/cuda/gemm/cublaslt.h"

#include <math.h>
#include <string.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "tests/doubles/cuda/libraries.h"
#include "tests/doubles/cuda/machine.h"
#include "tests/doubles/cuda/stream.h"

struct cublasLtContext {
    int users;
};

namespace {
struct layout {
    unsigned type;
    uint64_t rows, cols;
    int64_t stride;
};
struct description {
    unsigned compute, scale;
    int32_t trans_a, trans_b;
    uint32_t epilogue;
    const char *bias;
    const float *a_scale, *b_scale;
    int32_t a_mode, b_mode; /* of scales */
};
struct preference {
    uint64_t work;
    uint32_t reduction, align[4];
};
/* Within ax_lt_algo. */
struct algorithm {
    uint64_t work;
    uint32_t align[4];
    uint32_t sums; /* 1 … SUMS */
    uint32_t wide; /* sums' terms come in eights */
};
const uint32_t SUMS = 3;
const unsigned EXECUTION_FAILED =
    13; /* CUBLAS_STATUS_EXECUTION_FAILED, as of a launch that fails */

bool is_fastest(uint32_t sums) {
    const char *text = getenv("AXTRAIN_EMULATED_FASTEST");
    return sums == 1 + (text ? (uint32_t)atoi(text) : 0);
}
static_assert(sizeof(algorithm) <= sizeof(ax_lt_algo), "");

template <class T> T *as(void *opaque) {
    return (T *)opaque;
}

template <class T> unsigned take(T *field, const void *value, size_t bytes) {
    if (!value || bytes != sizeof *field)
        return AX_LT_INVALID_VALUE;
    memcpy(field, value, sizeof *field);
    return AX_LT_OK;
}

bool is_fp8(unsigned type) {
    return type == AX_LT_REAL_8F_E4M3 || type == AX_LT_REAL_8F_E5M2;
}

int bits_of(unsigned type) {
    return type == AX_LT_REAL_32F ? 32 : type == AX_LT_REAL_16BF ? 16 : 8;
}

/* Numbers of OCP's 8-bit formats (OFP8 1.0). */
float load_fp8(unsigned type, unsigned code) {
    const int fraction = type == AX_LT_REAL_8F_E4M3 ? 3 : 2;
    const int exponent = (int)(code & 127u) >> fraction, bias = fraction == 3 ? 7 : 15;
    const float part = (float)(code & ((1u << fraction) - 1)) / (float)(1 << fraction);
    const float size =
        exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias);
    const bool none = fraction == 3 ? (code & 127u) == 127u : exponent == 31;
    const float value = !none ? size : fraction == 2 && part == 0 ? INFINITY : NAN;
    return code & 128u ? -value : value;
}

float load(unsigned type, const char *at, int64_t i) {
    if (type == AX_LT_REAL_32F)
        return ((const float *)at)[i];
    if (is_fp8(type))
        return load_fp8(type, ((const unsigned char *)at)[i]);
    const uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void store(unsigned type, char *at, int64_t i, float x) {
    if (type == AX_LT_REAL_32F) {
        ((float *)at)[i] = x;
        return;
    }
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    ((uint16_t *)at)[i] =
        (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u
                                                   : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

float rounded(unsigned type, float x) {
    float here;
    store(type, (char *)&here, 0, x);
    return load(type, (const char *)&here, 0);
}

/* op(matrix) as floats, [cols of op][rows of op]: element (i, j) is at j·rows + i. */
std::vector<float> unpacked(const layout &l, const char *data, bool transposed) {
    std::vector<float> out(l.rows * l.cols);
    float fp8[256];
    for (unsigned code = 0; code < 256 && is_fp8(l.type); code++)
        fp8[code] = load_fp8(l.type, code);
    for (uint64_t j = 0; j < l.cols; j++)
        for (uint64_t i = 0; i < l.rows; i++)
            out[transposed ? i * l.cols + j : j * l.rows + i] =
                is_fp8(l.type)
                    ? fp8[((const unsigned char *)data)[(int64_t)j * l.stride + (int64_t)i]]
                    : load(l.type, data, (int64_t)j * l.stride + (int64_t)i);
    return out;
}

struct product {
    description desc;
    layout a, b, c, d;
    float alpha, beta;
    const char *A, *B, *C;
    char *D, *work;
    algorithm algo;
};

const int64_t TILE = 64;

bool has_vectors(const product &p) {
    return p.desc.a_mode == AX_LT_SCALE_OUTER;
}

/* What the sum of row i and column j is multiplied with. */
float scale_of(const product &p, int64_t i, int64_t j) {
    if (!is_fp8(p.a.type))
        return p.alpha;
    return p.alpha * (has_vectors(p) ? p.desc.a_scale[i] * p.desc.b_scale[j]
                                     : *p.desc.a_scale * *p.desc.b_scale);
}

/* Rows i … of column j: the k are dealt out to `algo.sums` partial sums, each in order, which
 * are then added. */
void column(const product &p, const float *a, const float *b, int64_t rows, int64_t inner,
            int64_t i, int64_t j) {
    float sums[TILE] = {};
    const int64_t n = std::min(TILE, rows - i);
    for (uint32_t part = 0; part < p.algo.sums; part++) {
        float partial[TILE] = {};
        for (int64_t k = part; k < inner; k += p.algo.sums) {
            const float *from = a + k * rows + i;
            const float x = b[j * inner + k];
            if (n == TILE)
                for (int64_t r = 0; r < TILE; r++)
                    partial[r] += from[r] * x;
            else
                for (int64_t r = 0; r < n; r++)
                    partial[r] += from[r] * x;
        }
        for (int64_t r = 0; r < n; r++)
            sums[r] += partial[r];
    }
    for (int64_t r = 0; r < n; r++) {
        float y = scale_of(p, i + r, j) * sums[r];
        if (p.beta != 0 || p.desc.epilogue == AX_LT_EPILOGUE_BIAS)
            y = rounded(p.d.type, y); /* as the library's kernels for Hopper do */
        if (p.beta != 0)
            y += p.beta * load(p.c.type, p.C, j * p.c.stride + i + r);
        if (p.desc.epilogue == AX_LT_EPILOGUE_BIAS)
            y += load(p.d.type, p.desc.bias, i + r);
        store(p.d.type, p.D, j * p.d.stride + i + r, y);
    }
}

/* Both ends of a workspace: all of its 32 MiB would take longer than the products of tests. */
void destroy(char *work, size_t bytes) {
    const size_t end = std::min(bytes, (size_t)1 << 16);
    memset(work, 0xff, end);
    memset(work + bytes - end, 0xff, end);
}

void compute(const product &p) {
    const int64_t rows = (int64_t)p.d.rows, cols = (int64_t)p.d.cols;
    const int64_t inner = (int64_t)(p.desc.trans_a ? p.a.rows : p.a.cols);
    const std::vector<float> a = unpacked(p.a, p.A, p.desc.trans_a),
                             b = unpacked(p.b, p.B, p.desc.trans_b);
    destroy(p.work, p.algo.work);
    ax_emulated_took(is_fastest(p.algo.sums) ? 1 : 2);
    for (int64_t i = 0; i < rows; i += TILE)
        for (int64_t j = 0; j < cols; j++)
            column(p, a.data(), b.data(), rows, inner, i, j);
}

/* Rows of the documentation's table of types that this backend may have (cublasLtMatmul, scale type 32F). The bias of a
 * row is of D's type, or there is none: of FP8 with D in 32F it would be in 16BF. */
const struct {
    unsigned compute, a, b, c_and_d;
    bool bias;
} types[] = {
    {AX_LT_COMPUTE_32F, AX_LT_REAL_16BF, AX_LT_REAL_16BF, AX_LT_REAL_16BF, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_16BF, AX_LT_REAL_16BF, AX_LT_REAL_32F, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_32F, AX_LT_REAL_32F, AX_LT_REAL_32F, true},
    {AX_LT_COMPUTE_32F_FAST_TF32, AX_LT_REAL_32F, AX_LT_REAL_32F, AX_LT_REAL_32F, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E4M3, AX_LT_REAL_8F_E4M3, AX_LT_REAL_16BF, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E4M3, AX_LT_REAL_8F_E4M3, AX_LT_REAL_32F, false},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E4M3, AX_LT_REAL_8F_E5M2, AX_LT_REAL_16BF, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E4M3, AX_LT_REAL_8F_E5M2, AX_LT_REAL_32F, false},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E5M2, AX_LT_REAL_8F_E4M3, AX_LT_REAL_16BF, true},
    {AX_LT_COMPUTE_32F, AX_LT_REAL_8F_E5M2, AX_LT_REAL_8F_E4M3, AX_LT_REAL_32F, false},
};

bool are_types(const product &p) {
    const bool bias = p.desc.epilogue == AX_LT_EPILOGUE_BIAS;
    for (const auto &row : types)
        if (row.compute == p.desc.compute && row.a == p.a.type && row.b == p.b.type &&
            row.c_and_d == p.c.type && row.c_and_d == p.d.type)
            return p.desc.scale == AX_LT_REAL_32F && (!bias || (row.bias && p.desc.bias));
    return false;
}

/* What is asked of FP8 besides. */
bool fits_fp8(const product &p) {
    const layout all[] = {p.a, p.b, p.c, p.d};
    bool ok = p.desc.trans_a == AX_LT_OP_T && p.desc.trans_b == AX_LT_OP_N && p.desc.a_scale &&
              p.desc.b_scale && p.d.rows % 16 == 0 && p.a.rows % 16 == 0;
    for (const layout &l : all)
        ok = ok && l.stride * bits_of(l.type) % 128 == 0;
    return ok;
}

/* Scales of rows: "outer vector scaling", which is for 9.0 alone. */
bool has_mode(const product &p) {
    return !has_vectors(p) || (ax_emulated_setting("AXTRAIN_EMULATED_CAPABILITY", 9) == 9 &&
                               ax_emulated_setting("AXTRAIN_EMULATED_ROW_SCALES", 1) == 1);
}

bool fits_modes(const product &p) {
    return p.desc.a_mode == p.desc.b_mode &&
           (p.desc.a_mode == AX_LT_SCALE_ONE || (has_vectors(p) && is_fp8(p.a.type)));
}

bool fits(const product &p) {
    const uint64_t m = p.desc.trans_a ? p.a.cols : p.a.rows,
                   k = p.desc.trans_a ? p.a.rows : p.a.cols,
                   n = p.desc.trans_b ? p.b.rows : p.b.cols,
                   k2 = p.desc.trans_b ? p.b.cols : p.b.rows;
    const layout all[] = {p.a, p.b, p.c, p.d};
    bool ok = m > 0 && n > 0 && k > 0 && k == k2 && p.c.rows == m && p.c.cols == n &&
              p.d.rows == m && p.d.cols == n && are_types(p) && fits_modes(p) &&
              (!is_fp8(p.a.type) || fits_fp8(p));
    for (const layout &l : all)
        ok = ok && l.stride >= (int64_t)l.rows;
    return ok;
}

bool aligned(const product &p) {
    const char *at[] = {p.A, p.B, p.C, p.D};
    bool ok = (uintptr_t)p.work % AX_LT_WORK_ALIGN == 0;
    for (int i = 0; i < 4; i++)
        ok = ok && (uintptr_t)at[i] % p.algo.align[i] == 0 &&
             (!is_fp8(p.a.type) || (uintptr_t)at[i] % 16 == 0);
    if (has_vectors(p))
        ok = ok && (uintptr_t)p.desc.a_scale % 16 == 0 && (uintptr_t)p.desc.b_scale % 16 == 0;
    return ok;
}

size_t bytes_of(const layout &l) {
    return ((l.cols - 1) * (size_t)l.stride + l.rows) * (size_t)bits_of(l.type) / 8;
}

/* All matrices are the device's. D is C, with one layout, or does not touch C. */
bool fits_in_memory(const product &p) {
    const char *const at[] = {p.A, p.B, p.C, p.D};
    const layout all[] = {p.a, p.b, p.c, p.d};
    bool ok = true;
    for (int i = 0; i < 4; i++)
        ok = ok && ax_emulated_is_device(at[i], bytes_of(all[i]));
    const size_t rows = has_vectors(p) ? p.d.rows : 1, cols = has_vectors(p) ? p.d.cols : 1;
    if (is_fp8(p.a.type))
        ok = ok && ax_emulated_is_device(p.desc.a_scale, rows * sizeof(float)) &&
             ax_emulated_is_device(p.desc.b_scale, cols * sizeof(float));
    if (p.desc.epilogue == AX_LT_EPILOGUE_BIAS)
        ok = ok && ax_emulated_is_device(p.desc.bias, p.d.rows * (size_t)bits_of(p.d.type) / 8);
    if (p.C == p.D)
        return ok && p.c.stride == p.d.stride;
    const bool apart = p.C + bytes_of(p.c) <= p.D || p.D + bytes_of(p.d) <= p.C;
    return ok && (apart || p.beta == 0);
}

uint64_t terms(const product &p) {
    return p.desc.trans_a ? p.a.rows : p.a.cols;
}

/* Kernels that this process has loaded: a first launch loads one, which fails within a capture. */
bool is_loaded(const product &p, cudaStream_t stream) {
    static std::set<std::array<uint32_t, 9>> loaded;
    const std::array<uint32_t, 9> kernel = {p.algo.sums,
                                            p.algo.wide,
                                            p.a.type,
                                            p.b.type,
                                            p.d.type,
                                            (uint32_t)p.desc.trans_a,
                                            (uint32_t)p.desc.trans_b,
                                            p.desc.compute,
                                            (uint32_t)p.desc.a_mode};
    {
        ax_emulated_hold held;
        if (loaded.count(kernel))
            return true;
    }
    if (ax_emulated_forbidden(stream) != cudaSuccess)
        return false;
    ax_emulated_hold held;
    loaded.insert(kernel);
    return true;
}

/* ---- the functions ---- */

size_t GetVersion() {
    return ax_emulated_setting("AXTRAIN_EMULATED_CUBLASLT", 130100);
}
const char *GetStatusString(unsigned status) {
    return status == AX_LT_OK ? "success" : "an error of the stand-in for cuBLASLt";
}
unsigned Create(ax_lt_handle *handle) {
    *handle = new cublasLtContext();
    return AX_LT_OK;
}
unsigned Destroy(ax_lt_handle handle) {
    delete handle;
    return AX_LT_OK;
}

unsigned MatmulDescCreate(ax_lt_desc *desc, unsigned compute, unsigned scale) {
    *desc = (ax_lt_desc) new description{
        compute, scale,   AX_LT_OP_N, AX_LT_OP_N,      AX_LT_EPILOGUE_DEFAULT,
        nullptr, nullptr, nullptr,    AX_LT_SCALE_ONE, AX_LT_SCALE_ONE};
    return AX_LT_OK;
}
unsigned MatmulDescDestroy(ax_lt_desc desc) {
    delete as<description>(desc);
    return AX_LT_OK;
}
unsigned MatmulDescSetAttribute(ax_lt_desc desc, unsigned attribute, const void *value,
                                size_t bytes) {
    description *d = as<description>(desc);
    switch (attribute) {
    case AX_LT_DESC_TRANSA:
        return take(&d->trans_a, value, bytes);
    case AX_LT_DESC_TRANSB:
        return take(&d->trans_b, value, bytes);
    case AX_LT_DESC_EPILOGUE:
        return take(&d->epilogue, value, bytes);
    case AX_LT_DESC_BIAS_POINTER:
        return take(&d->bias, value, bytes);
    case AX_LT_DESC_A_SCALE:
        return take(&d->a_scale, value, bytes);
    case AX_LT_DESC_B_SCALE:
        return take(&d->b_scale, value, bytes);
    case AX_LT_DESC_A_SCALE_MODE:
        return take(&d->a_mode, value, bytes);
    case AX_LT_DESC_B_SCALE_MODE:
        return take(&d->b_mode, value, bytes);
    default:
        return AX_LT_INVALID_VALUE;
    }
}

unsigned MatrixLayoutCreate(ax_lt_layout *l, unsigned type, uint64_t rows, uint64_t cols,
                            int64_t stride) {
    *l = (ax_lt_layout) new layout{type, rows, cols, stride};
    return AX_LT_OK;
}
unsigned MatrixLayoutDestroy(ax_lt_layout l) {
    delete as<layout>(l);
    return AX_LT_OK;
}
unsigned MatrixLayoutSetAttribute(ax_lt_layout l, unsigned attribute, const void *value,
                                  size_t bytes) {
    switch (attribute) {
    case AX_LT_LAYOUT_ROWS:
        return take(&as<layout>(l)->rows, value, bytes);
    case AX_LT_LAYOUT_COLS:
        return take(&as<layout>(l)->cols, value, bytes);
    default:
        return AX_LT_INVALID_VALUE;
    }
}

unsigned MatmulPreferenceCreate(ax_lt_preference *p) {
    *p = (ax_lt_preference) new preference{0, 7, {256, 256, 256, 256}};
    return AX_LT_OK;
}
unsigned MatmulPreferenceDestroy(ax_lt_preference p) {
    delete as<preference>(p);
    return AX_LT_OK;
}
unsigned MatmulPreferenceSetAttribute(ax_lt_preference opaque, unsigned attribute,
                                      const void *value, size_t bytes) {
    preference *p = as<preference>(opaque);
    switch (attribute) {
    case AX_LT_PREF_MAX_WORKSPACE:
        return take(&p->work, value, bytes);
    case AX_LT_PREF_REDUCTION:
        return take(&p->reduction, value, bytes);
    case AX_LT_PREF_ALIGNMENT_A:
    case AX_LT_PREF_ALIGNMENT_B:
    case AX_LT_PREF_ALIGNMENT_C:
    case AX_LT_PREF_ALIGNMENT_D:
        return take(&p->align[attribute - AX_LT_PREF_ALIGNMENT_A], value, bytes);
    default:
        return AX_LT_INVALID_VALUE;
    }
}

product product_of(ax_lt_desc desc, ax_lt_layout a, ax_lt_layout b, ax_lt_layout c,
                   ax_lt_layout d) {
    product p = {};
    p.desc = *as<description>(desc);
    p.a = *as<layout>(a);
    p.b = *as<layout>(b);
    p.c = *as<layout>(c);
    p.d = *as<layout>(d);
    return p;
}

/* They take what they are promised, and a workspace where sums may be in parts. */
unsigned MatmulAlgoGetHeuristic(ax_lt_handle, ax_lt_desc desc, ax_lt_layout a, ax_lt_layout b,
                                ax_lt_layout c, ax_lt_layout d, ax_lt_preference opaque, int wanted,
                                ax_lt_choice *found, int *n) {
    const preference *p = as<preference>(opaque);
    const product asked = product_of(desc, a, b, c, d);
    algorithm algo = {p->reduction != AX_LT_REDUCTION_NONE ? p->work : 0, {}, 0, 0};
    if (wanted < 1 || !fits(asked))
        return AX_LT_INVALID_VALUE;
    if (!has_mode(asked))
        return AX_LT_NOT_SUPPORTED;
    algo.wide = terms(asked) % 8 == 0;
    memcpy(algo.align, p->align, sizeof algo.align);
    for (*n = 0; *n < wanted && algo.sums < SUMS; ++*n) {
        algo.sums++;
        found[*n] = {};
        memcpy(&found[*n].algo, &algo, sizeof algo);
        found[*n].workspaceSize = algo.work;
    }
    return AX_LT_OK;
}

unsigned MatmulAlgoCheck(ax_lt_handle, ax_lt_desc desc, ax_lt_layout a, ax_lt_layout b,
                         ax_lt_layout c, ax_lt_layout d, const ax_lt_algo *opaque,
                         ax_lt_choice *found) {
    algorithm algo;
    memcpy(&algo, opaque, sizeof algo);
    const product p = product_of(desc, a, b, c, d);
    bool ok = fits(p) && has_mode(p) && algo.sums >= 1 && algo.sums <= SUMS &&
              (!algo.wide || terms(p) % 8 == 0);
    for (uint32_t align : algo.align)
        ok = ok && align >= 1 && align <= 256;
    if (!ok)
        return AX_LT_INVALID_VALUE;
    *found = {};
    found->algo = *opaque;
    found->workspaceSize = algo.work;
    return AX_LT_OK;
}

unsigned Matmul(ax_lt_handle, ax_lt_desc desc, const void *alpha, const void *a, ax_lt_layout da,
                const void *b, ax_lt_layout db, const void *beta, const void *c, ax_lt_layout dc,
                void *d, ax_lt_layout dd, const ax_lt_algo *algo, void *work, size_t work_bytes,
                cudaStream_t stream) {
    product p = product_of(desc, da, db, dc, dd);
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    memcpy(&p.algo, algo, sizeof p.algo);
    p.A = (const char *)a;
    p.B = (const char *)b;
    p.C = (const char *)c;
    p.D = (char *)d;
    p.work = (char *)work;
    if (!fits(p) || !aligned(p) || !fits_in_memory(p) || work_bytes < p.algo.work)
        return AX_LT_INVALID_VALUE;
    if ((p.algo.wide && terms(p) % 8 != 0) || !has_mode(p))
        return AX_LT_NOT_SUPPORTED;
    if (!is_loaded(p, stream))
        return EXECUTION_FAILED;
    ax_emulated_add(stream, [=] { compute(p); });
    return AX_LT_OK;
}
} // namespace

const struct ax_standin ax_standin_cublaslt[] = {
#define ROW(result, name, parameters) {"cublasLt" #name, (void *)name},
    AX_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
        {nullptr, nullptr},
};
