"""The loss of indexers (DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1.1), of which transformers has none: written here as
in the paper, in float64, on what transformers' attention computes, and differentiated by autograd.
"""

import copy
import math

import tools

import torch

MODES = ("warm_up", "sparse")


class Watch:
    """What the indexers of a model read and choose, and what their attention gives to each key."""

    def __init__(self, model):
        self.read, self.chosen, self.weights, self.handles = {}, {}, {}, []
        for i, layer in enumerate(model.model.layers):
            if getattr(layer.self_attn, "indexer", None) is not None:
                self.handles.append(layer.self_attn.indexer.register_forward_hook(self.see_indexer(i)))
                self.handles.append(layer.self_attn.register_forward_hook(self.see_attention(i)))

    def see_indexer(self, i):
        def hook(_module, inputs, out):
            self.read[i] = [x.detach() if torch.is_tensor(x) else x for x in inputs[:3]]
            self.chosen[i] = out
        return hook

    def see_attention(self, i):
        def hook(_module, _inputs, out):
            self.weights[i] = out[1][0].detach()
        return hook

    def close(self):
        for h in self.handles:
            h.remove()


def rotated(x, cos, sin, neighbors):
    """Rope on the first elements of x [T, heads, d]: pairs of the halves of these, or of neighbors."""
    n = cos.shape[-1]
    c, s = cos[:, None, :n // 2], sin[:, None, :n // 2]
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if neighbors else (x[..., :n // 2], x[..., n // 2:n])
    return torch.cat([a * c - b * s, b * c + a * s, x[..., n:]], -1)


def scores_of(indexer, read, neighbors):
    """[T, T]: sum over heads of w * relu(q . k / sqrt(d)), of constant inputs."""
    hidden, latent, (cos, sin) = read
    heads, d = indexer.n_heads, indexer.head_dim
    q = rotated(indexer.wq_b(latent)[0].view(-1, heads, d), cos[0], sin[0], neighbors)
    k = rotated(indexer.k_norm(indexer.wk(hidden))[0][:, None], cos[0], sin[0], neighbors)[:, 0]
    w = indexer.weights_proj(hidden)[0] / math.sqrt(heads)
    return torch.einsum("th,ths->ts", w, torch.einsum("thd,sd->ths", q, k).div(math.sqrt(d)).relu())


def divergence(scores, weights, chosen):
    """Sum over queries of KL(p || softmax(scores)) over the keys that they see; p: attention summed over heads, to 1."""
    n = scores.shape[0]
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    if chosen is not None:
        seen &= torch.zeros(n, n, dtype=torch.bool).scatter(1, chosen[0].long(), True)
    p = weights.sum(0) * seen
    p = p / p.sum(-1, keepdim=True)
    log_r = scores.masked_fill(~seen, -math.inf).log_softmax(-1)
    return (p * (p.clamp(min=1e-300).log() - log_r))[seen & (p > 0)].sum()


def train(model, mode, packed, neighbors):
    """Mean divergence of tokens and indexers, and gradients of its sum over indexers."""
    model = copy.deepcopy(model).double()
    bounds, total, n = packed["cu_seqlens"].tolist(), 0.0, 0
    for name, p in model.named_parameters():
        p.requires_grad_(".indexer." in name)
    if mode == "warm_up":
        for layer in model.model.layers:
            if getattr(layer.self_attn, "indexer", None) is not None:
                layer.self_attn.indexer.index_topk = 1 << 20
    for lo, hi in zip(bounds[:-1], bounds[1:]):
        watch = Watch(model)
        model(input_ids=packed["input_ids"][:, lo:hi], use_cache=False)
        watch.close()
        n = len(watch.read)
        for i, read in watch.read.items():
            scores = scores_of(model.model.layers[i].self_attn.indexer, read, neighbors)
            total = total + divergence(scores, watch.weights[i], watch.chosen[i] if mode == "sparse" else None)
    loss = total / bounds[-1]
    loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.item() / n, grads


def write(model, root, packed, others, wide):
    """grads_indexers_MODE.safetensors, and the figures. others: the norm of the gradients of all else; wide: in which
    transformers' modules stay in float64."""
    figures = dict(about="the packed documents: KL of attention, summed over heads and to 1, and softmax of the scores of "
                         "indexers, mean over tokens and indexers; gradients are of its sum over indexers")
    for mode in MODES:
        with wide():
            kl, grads = train(model, mode, packed, model.config.model_type == "glm_moe_dsa")
        squares = sum(g.pow(2).sum().item() for g in grads.values())
        tools.save_tensors(root / "golden" / f"grads_indexers_{mode}.safetensors",
                           grads)
        figures[mode] = dict(kl=kl, grad_norm=math.sqrt(squares + (others ** 2 if mode == "sparse" else 0)))
    return figures
