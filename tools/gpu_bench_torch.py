#!/usr/bin/env python3
"""PyTorch beside `axtrain bench` on one GPU: the same figures, by the fastest that PyTorch has for each.

usage: gpu_bench_torch.py [--device cuda|cpu] [--small] [--seconds 120] [--compile-seconds 60]

Needs Python and PyTorch alone. Prints one line of JSON, {NAME: {"value": V, "unit": U}, ...}, and a Markdown table. Exit
code 0: all was measured; 1: some was not, and stderr says what and why; 77: there is no PyTorch, or no GPU that it can
use.

copy_bandwidth            bytes read and written by a copy of 1 GiB
matmul_peak               bfloat16, 8192 x 8192 x 8192
attention_forward         scaled_dot_product_attention, causal, 4,096 tokens, 64 heads over 8 KV heads of 128: the faster of
attention_backward        flash and cuDNN. 2 FLOPs per multiply-add of a query with the keys it sees: forward two products,
                          backward five
rmsnorm_backward          bfloat16, 32,768 x 4,096: dy and x are read, dx is written
adamw                     fused, of 4,096 x 14,336 in bfloat16: weight and two moments are read and written, the gradient is
                          read
softmax_backward          cross entropy, bfloat16, 4,096 x 128,256: logits are read, their gradient is written. What is moved
                          in between does not count
training_1b               a step of Llama 3.2 1B's shape, 4,096 tokens: weights, gradients and moments in bfloat16, fused
                          AdamW; forward, backward and update, without the gradient's norm
training_1b_checkpointed  the same, with each layer's forward computed again in backward
training_1b_compiled      the first by torch.compile, within --compile-seconds

Each is the median of at least 10 runs after some others, timed by events of the GPU. A run takes longer on the GPU than the
host takes to enqueue it, so that the host's time does not count. --device cpu --small: all of it in a few seconds on a
processor, to see that it works.
"""
import argparse
import contextlib
import json
import signal
import statistics
import sys
import time
from types import SimpleNamespace as Record

started = time.monotonic()
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
p.add_argument("--small", action="store_true")
p.add_argument("--seconds", type=float, default=120, help="for all of it")
p.add_argument("--compile-seconds", type=float, default=60, help="0: without")
a = p.parse_args()

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.checkpoint import checkpoint
except ImportError as e:
    print(f"gpu_bench_torch: PyTorch cannot be loaded: {e}", file=sys.stderr)
    sys.exit(77)
if a.device == "cuda" and not torch.cuda.is_available():
    print("gpu_bench_torch: PyTorch has no GPU that it can use", file=sys.stderr)
    sys.exit(77)

ON_GPU = a.device == "cuda"
BF16 = torch.bfloat16
FULL = Record(
    copy=1 << 30, matmul=8192, tokens=4096, heads=64, kv_heads=8, head_dim=128, norm_rows=32768, hidden=4096, ff=14336,
    vocab=128256, model=Record(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ff=8192, vocab=128256),
)
SMALL = Record(
    copy=1 << 16, matmul=64, tokens=64, heads=4, kv_heads=2, head_dim=16, norm_rows=64, hidden=48, ff=96, vocab=500,
    model=Record(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ff=96, vocab=500),
)
size = SMALL if a.small else FULL
figures = {}
notes = {}


def report(name, value, unit, note=""):
    figures[name] = {"value": float(f"{value:.6g}"), "unit": unit}
    notes[name] = note


# ---- time ----


class OutOfTime(BaseException):
    """Of no class that a compiler catches."""


def interrupt(_signal, _frame):
    raise OutOfTime


@contextlib.contextmanager
def within(seconds):
    """Raises OutOfTime in the block after so long, and at the end of --seconds."""
    left = min(seconds, a.seconds - (time.monotonic() - started))
    if left <= 0:
        raise OutOfTime
    signal.setitimer(signal.ITIMER_REAL, left)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def finish():
    if ON_GPU:
        torch.cuda.synchronize()


def once(run):
    start = time.perf_counter()
    run()
    finish()
    return time.perf_counter() - start


def seconds_of(run):
    for _ in range(3):
        run()
    finish()
    n = min(100, max(10, int(0.5 / once(run))))
    if not ON_GPU:
        return statistics.median(once(run) for _ in range(n))
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(n)]
    run()  # while the GPU computes it, the host goes ahead
    for before, after in events:
        before.record()
        run()
        after.record()
    finish()
    return statistics.median(before.elapsed_time(after) for before, after in events) / 1e3


# ---- single ops ----


def random(*shape, grad=False):
    return torch.randn(*shape, device=a.device, dtype=BF16, requires_grad=grad)


def copy():
    to, of = (torch.zeros(size.copy, device=a.device, dtype=torch.uint8) for _ in range(2))
    report("copy_bandwidth", 2 * size.copy / seconds_of(lambda: to.copy_(of)) / 1e9, "GB/s")


def matmul():
    n = size.matmul
    x, y, z = random(n, n), random(n, n), random(n, n)
    report("matmul_peak", 2 * n**3 / seconds_of(lambda: torch.mm(x, y, out=z)) / 1e12, "TFLOP/s")


def attention():
    T = size.tokens
    q = random(1, size.heads, T, size.head_dim, grad=True)
    k, v = (random(1, size.kv_heads, T, size.head_dim, grad=True) for _ in range(2))
    dout = random(*q.shape)
    product = 2 * size.heads * size.head_dim * T * (T + 1) / 2
    best, refused = {}, []

    def attend():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def forward():
        with torch.no_grad():
            attend()

    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        try:
            with sdpa_kernel(backend):
                rates = [("forward", 2 * product / seconds_of(forward))]
                out = attend()
            backward = seconds_of(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
            rates.append(("backward", 5 * product / backward))
        except RuntimeError as e:
            refused.append(f"{backend.name}: {first_line(e)}")
            continue
        for way, rate in rates:
            best[way] = max(best.get(way, (0, "")), (rate, backend.name))
    if not best:
        raise RuntimeError("; ".join(refused))
    for way, (rate, name) in best.items():
        report(f"attention_{way}", rate / 1e12, "TFLOP/s", name.lower())


def norm():
    x, w = random(size.norm_rows, size.hidden, grad=True), random(size.hidden, grad=True)
    y, dy = F.rms_norm(x, (size.hidden,), w, 1e-5), random(size.norm_rows, size.hidden)
    t = seconds_of(lambda: torch.autograd.grad(y, (x, w), dy, retain_graph=True))
    report("rmsnorm_backward", 3 * 2 * x.numel() / t / 1e9, "GB/s")


def adamw():
    w = random(size.hidden, size.ff, grad=True)
    w.grad = random(size.hidden, size.ff)
    update = torch.optim.AdamW([w], lr=1e-4, fused=True)
    report("adamw", 7 * 2 * w.numel() / seconds_of(update.step) / 1e9, "GB/s")


def softmax():
    logits = random(size.tokens, size.vocab, grad=True)
    loss = F.cross_entropy(logits, torch.randint(size.vocab, (size.tokens,), device=a.device))
    t = seconds_of(lambda: torch.autograd.grad(loss, logits, retain_graph=True))
    report("softmax_backward", 2 * 2 * logits.numel() / t / 1e9, "GB/s")


# ---- a training step ----


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m
        self.split = [m.heads, m.kv_heads, m.kv_heads]
        self.norms = nn.ParameterList(torch.ones(m.hidden) for _ in range(2))
        self.qkv = nn.Linear(m.hidden, sum(self.split) * m.head_dim, bias=False)
        self.out = nn.Linear(m.heads * m.head_dim, m.hidden, bias=False)
        self.gate_up = nn.Linear(m.hidden, 2 * m.ff, bias=False)
        self.down = nn.Linear(m.ff, m.hidden, bias=False)

    def forward(self, x, cos, sin):
        """x [T][hidden]; cos, sin [T][head_dim / 2]."""
        h = self.qkv(F.rms_norm(x, x.shape[1:], self.norms[0], 1e-5))
        q, k, v = h.view(1, len(x), -1, self.m.head_dim).transpose(1, 2).split(self.split, dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(h.transpose(1, 2).reshape(len(x), -1))
        gate, up = self.gate_up(F.rms_norm(x, x.shape[1:], self.norms[1], 1e-5)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Llama(nn.Module):
    """Gives the mean loss of tokens [T + 1]."""

    def __init__(self, m, checkpointed):
        super().__init__()
        self.checkpointed = checkpointed
        self.embedding = nn.Parameter(0.02 * torch.randn(m.vocab, m.hidden))
        self.layers = nn.ModuleList(Layer(m) for _ in range(m.layers))
        self.norm = nn.Parameter(torch.ones(m.hidden))
        rates = 5e5 ** (-torch.arange(m.head_dim // 2) * 2 / m.head_dim)
        angles = torch.arange(size.tokens)[:, None] * rates
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens):
        x = F.embedding(tokens[:-1], self.embedding)
        for layer in self.layers:
            rest = (x, self.cos, self.sin)
            x = checkpoint(layer, *rest, use_reentrant=False) if self.checkpointed else layer(*rest)
        logits = F.linear(F.rms_norm(x, x.shape[1:], self.norm, 1e-5), self.embedding)
        return F.cross_entropy(logits.float(), tokens[1:])


def training(suffix="", checkpointed=False, compiled=False):
    m = size.model
    with torch.device(a.device):
        model = Llama(m, checkpointed).to(BF16)
        tokens = torch.randint(m.vocab, (size.tokens + 1,))
    update = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loss_of = torch.compile(model) if compiled else model

    def step():
        loss_of(tokens).backward()
        update.step()
        update.zero_grad(set_to_none=True)

    t = seconds_of(step)
    with torch.no_grad():
        loss = model(tokens).item()
    if not loss < 20:
        raise RuntimeError(f"the loss is {loss}")
    report(f"training_1b{suffix}", size.tokens / t, "tokens/s")


# ---- all of it ----


def first_line(e):
    return (str(e).splitlines() or [type(e).__name__])[0]


def measured(what, run, seconds):
    """Whether it was; says why not."""
    why = None
    try:
        with within(seconds):
            run()
    except OutOfTime:
        why = "out of time"
    except RuntimeError as e:
        why = first_line(e)
    if ON_GPU:
        torch.cuda.empty_cache()
    if why:
        print(f"gpu_bench_torch: {what} was not measured: {why}", file=sys.stderr)
    return not why


def table():
    device = torch.cuda.get_device_name() if ON_GPU else "cpu"
    print(f"PyTorch {torch.__version__}, {device}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}\n")
    print("| | | | of copy or matmul | |\n|---|---|---|---|---|")
    bounds = {"GB/s": figures.get("copy_bandwidth"), "TFLOP/s": figures.get("matmul_peak")}
    for name, f in figures.items():
        bound = bounds.get(f["unit"])
        share = f"{f['value'] / bound['value']:.1%}" if bound else ""
        print(f"| {name} | {f['value']:,.4g} | {f['unit']} | {share} | {notes[name]} |")


signal.signal(signal.SIGALRM, interrupt)
parts = [(f.__name__, f, a.seconds) for f in (copy, matmul, attention, norm, adamw, softmax)]
parts.append(("training", training, a.seconds))
parts.append(("training, checkpointed", lambda: training("_checkpointed", checkpointed=True), a.seconds))
if a.compile_seconds > 0:
    parts.append(("training, compiled", lambda: training("_compiled", compiled=True), a.compile_seconds))
ok = [measured(*part) for part in parts]
print(json.dumps(figures), flush=True)
print()
table()
sys.exit(0 if all(ok) else 1)
