"""rope.json: inverse frequencies and attention scaling of transformers' rope variants.

dynamic depends on the sequence length: `seq_len` says which.
"""

from tools import save_json

import torch

VARIANTS = [
    ("default", {}, None),
    ("linear", {"factor": 4.0}, None),
    ("dynamic", {"factor": 2.0}, 1024),
    ("dynamic", {"factor": 2.0}, 4096),
    ("dynamic", {"factor": 2.0}, 10000),
    ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 2048}, None),
    ("llama3", {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512}, None),
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": 1024}, None),
    ("yarn", {"factor": 16.0, "original_max_position_embeddings": 512, "beta_fast": 16.0,
              "beta_slow": 2.0}, None),
    ("yarn", {"factor": 40.0, "original_max_position_embeddings": 1024, "mscale": 0.707,
              "mscale_all_dim": 1.0}, None),
    ("yarn", {"factor": 8.0, "original_max_position_embeddings": 1024, "attention_factor": 1.25,
              "truncate": False}, None),
    ("longrope", {"original_max_position_embeddings": 1024}, 1024),
    ("longrope", {"original_max_position_embeddings": 1024}, 1025),
    ("longrope", {"original_max_position_embeddings": 1024, "factor": 2.0}, None),
    ("longrope", {"original_max_position_embeddings": 512, "factor": 8.0,
                  "attention_factor": 1.5}, 4096),
]


def frequencies(head_dim, rope, seq_len):
    """(inv_freq, attention scaling) as a Llama of this shape has them."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    if rope["rope_type"] == "default":
        powers = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        return 1.0 / rope["rope_theta"] ** powers, 1.0
    config = LlamaConfig(hidden_size=head_dim * 4, num_attention_heads=4, head_dim=head_dim,
                         max_position_embeddings=4096, rope_parameters=rope)
    return ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=seq_len)


def family_rope(out):
    cases = []
    for head_dim in (64, 128):
        for theta in (10000.0, 500000.0):
            for kind, extra, seq_len in VARIANTS:
                rope = {"rope_type": kind, "rope_theta": theta, **extra}
                if kind == "longrope":
                    rope["short_factor"] = [1 + i / 16 for i in range(head_dim // 2)]
                    rope["long_factor"] = [1 + i / 2 for i in range(head_dim // 2)]
                inv_freq, scale = frequencies(head_dim, dict(rope), seq_len)
                cases.append(dict(head_dim=head_dim, max_position_embeddings=4096,
                                  rope_parameters=rope, seq_len=seq_len,
                                  attention_scaling=float(scale), inv_freq=inv_freq))
    save_json(out / "rope.json", dict(about=__doc__.strip(), cases=cases))
    print("rope", len(cases))
