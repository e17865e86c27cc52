"""models/: small decoders of many families, with what transformers computes for them.

Weights follow the rule of ../rule.py (weights.json), except gpt_oss's, which are exact in MXFP4.
SPECS and FAMILY_SPECS list the folders, make_model writes one.
"""

import contextlib
import copy
import dataclasses
import hashlib
import json
import math
import shutil
import tempfile
from pathlib import Path

from tools import (fresh, gen, IGNORE, max_diff, randint, randn, rel_norm_diff, save_config,
                   save_json, save_tensors, sig)
import indexers
import rule

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file


@dataclasses.dataclass
class ModelSpec:
    name: str                # folder name
    config: dict             # keyword arguments of the HF config class
    config_class: str
    seed: int
    seq: int = 32            # padded batch: two rows of this length
    row1: int = 23           # real tokens of row 1 (the rest is padding)
    docs: tuple = (19, 1, 5, 11)   # packed row: document lengths
    prompts: tuple = (1, 7, 20)    # greedy generation: prompt lengths
    new_tokens: int = 24
    tokenizer: str = ""      # folder under tokenizer/ to copy, or ""
    bf16: bool = False       # also write the bf16 loss curves
    about: str = ""
    embed_std: float = 0.2   # size of the embeddings (smaller where they are tied)
    hub: bool = False        # config.legacy.json as the family's published files have it (hub_config)
    final_norm: float = 1.0  # factor on the last norm: lively logits although tied embeddings are small
    bf16_exact: bool = False  # every weight is exact in bf16, experts in MXFP4: also write mxfp4/
    mtp: int = 0             # multi-token-prediction layers appended to model.safetensors


def common(**kw):
    base = dict(vocab_size=512, hidden_size=64, max_position_embeddings=256,
                bos_token_id=None, eos_token_id=None, pad_token_id=None)
    base.update(kw)
    return base


def small(**kw):
    return common(**dict(dict(vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, tie_word_embeddings=False), **kw))


SPECS = [
    ModelSpec(
        "llama", common(
            intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
            bos_token_id=500, eos_token_id=504, pad_token_id=507),
        "LlamaConfig", seed=1022, tokenizer="llama3_style", bf16=True,
        about="dense, GQA 4q/2kv heads of 16, untied lm_head, RoPE rotate-half"),
    ModelSpec(
        "qwen3", common(
            intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-6, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
            eos_token_id=508, pad_token_id=506),
        "Qwen3Config", seed=1001, tokenizer="qwen2_style", embed_std=0.1,
        about="dense, per-head q/k RMSNorm, head_dim 32 != hidden/heads, tied embeddings"),
    ModelSpec(
        "mistral", common(
            intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, sliding_window=16,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
            bos_token_id=1, eos_token_id=2, pad_token_id=0),
        "MistralConfig", seed=2103, tokenizer="sp_bpe",
        about="dense, sliding window attention of 16 positions (key j visible to query i iff 0 <= i-j < 16)"),
    ModelSpec(
        "mixtral", common(
            vocab_size=320, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2,
            rms_norm_eps=1e-5, sliding_window=None, router_aux_loss_coef=0.02,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "MixtralConfig", seed=1026,
        about="MoE, 8 experts top-2, softmax over all experts then renormalised over the two"),
    ModelSpec(
        "qwen3_moe", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=8,
            num_experts_per_tok=2, norm_topk_prob=True, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Qwen3MoeConfig", seed=1015,
        about="MoE, q/k norm, norm_topk_prob true, every layer sparse"),
    ModelSpec(
        "qwen3_moe_nonorm", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=8,
            num_experts_per_tok=2, norm_topk_prob=False, mlp_only_layers=[1], rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Qwen3MoeConfig", seed=1017,
        about="MoE, norm_topk_prob false (weights sum to < 1), layer 1 dense (mlp_only_layers)"),
    ModelSpec(
        "deepseek_v3", common(
            vocab_size=320, intermediate_size=128, moe_intermediate_size=32, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8,
            routed_scaling_factor=2.5, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=16,
            qk_nope_head_dim=16, v_head_dim=24, n_group=4, topk_group=2, num_experts_per_tok=3,
            first_k_dense_replace=1, norm_topk_prob=True, rope_interleave=True, num_mtp_layers=0,
            rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0,
                                 beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                                 original_max_position_embeddings=64)),
        "DeepseekV3Config", seed=1002,
        about="MLA (q_lora 24, kv_lora 16, nope 16 + rope 16, v 24), layer 0 dense, sigmoid router with "
              "correction bias, 4 groups keep 2, top-3, shared expert, YaRN with interleaved rope"),
]

YARN = dict(rope_type="yarn", rope_theta=10000.0, beta_fast=32.0, beta_slow=1.0)

FAMILY_SPECS = [
    ModelSpec(
        "gemma2", common(
            vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-6, sliding_window=12, query_pre_attn_scalar=24,
            attn_logit_softcapping=2.5, final_logit_softcapping=4.0, pad_token_id=0, eos_token_id=1, bos_token_id=2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "Gemma2Config", seed=201, embed_std=0.08, final_norm=3.0, hub=True, bf16=True,
        about="norms before and after attention and MLP, all times (1 + w), embeddings times sqrt(48), tanh caps on attention "
              "scores (2.5) and logits (4), layers sliding/full/sliding (window 12), softmax scale 24**-0.5, gelu_tanh, tied"),
    ModelSpec(
        "gemma3_text", common(
            vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-6, sliding_window=10, query_pre_attn_scalar=20,
            sliding_window_pattern=3, pad_token_id=0, eos_token_id=1, bos_token_id=2,
            rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0),
                                 full_attention=dict(rope_type="default", rope_theta=1000000.0))),
        "Gemma3TextConfig", seed=202, row1=27, embed_std=0.08, final_norm=3.0, hub=True,
        about="as gemma2 without caps, per-head q/k norms (1 + w), every third layer full, the others window 10, rope base "
              "1e6 in full and 1e4 in sliding layers, 1 kv head, softmax scale 20**-0.5"),
    ModelSpec(
        "phi3", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5, original_max_position_embeddings=32,
            rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
                                 short_factor=[1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5],
                                 long_factor=[1.0, 1.1, 1.5, 2.3, 3.9, 7.1, 13.5, 26.0])),
        "Phi3Config", seed=203, seq=40, row1=35, hub=True,
        about="fused qkv_proj and gate_up_proj, longrope: 32 original positions, so the batch (40) uses the long factors and "
              "the packed documents (at most 21) the short ones"),
    ModelSpec(
        "olmo2", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        "Olmo2Config", seed=204, embed_std=0.7, hub=True,
        about="no norm before attention or MLP, norms on their outputs, q/k norm over the whole projection (weights 64 and 32)"),
    ModelSpec(
        "smollm3", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-6, no_rope_layer_interval=2, rope_parameters=dict(rope_type="default", rope_theta=5000000.0)),
        "SmolLM3Config", seed=205, embed_std=0.1, hub=True, about="llama with layer 1 without rope (no_rope_layers 1, 0, 1), tied"),
    ModelSpec(
        "granite", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5, embedding_multiplier=4.0, attention_multiplier=0.35, residual_multiplier=0.7,
            logits_scaling=1.6, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "GraniteConfig", seed=206, embed_std=0.05, final_norm=4.0, hub=True,
        about="llama with embeddings x 4, softmax scale 0.35, each sub-layer's output x 0.7, logits / 1.6, tied"),
    ModelSpec(
        "gpt_oss", common(
            vocab_size=320, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, num_local_experts=6, num_experts_per_tok=3, sliding_window=12, swiglu_limit=7.0, rms_norm_eps=1e-5,
            max_position_embeddings=4096, router_aux_loss_coef=0.9,
            rope_parameters=dict(YARN, rope_theta=150000.0, factor=8.0, truncate=False, original_max_position_embeddings=512)),
        "GptOssConfig", seed=212, hub=True, bf16_exact=True,
        about="attention sinks, layer 0 window 12 and layer 1 full, biases on q/k/v/o, router and experts, 6 experts top-3 with "
              "softmax over the chosen logits, interleaved gate_up, SwiGLU clamped at 7 with alpha 1.702, YaRN untruncated"),
    ModelSpec(
        "deepseek_v2", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, n_shared_experts=2, n_routed_experts=8, routed_scaling_factor=1.0, kv_lora_rank=16,
            q_lora_rank=None, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, topk_method="greedy",
            num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=False, rms_norm_eps=1e-6,
            rope_parameters=dict(YARN, factor=4.0, mscale=0.707, mscale_all_dim=0.707, original_max_position_embeddings=64)),
        "DeepseekV2Config", seed=1009, hub=True,
        about="MLA without q_lora (kv_lora 16, nope 16 + rope 8, v 12), layer 0 dense, softmax router, 8 experts top-2 by plain "
              "top-k, weights not renormalised, 2 shared experts, interleaved rope, YaRN"),
    ModelSpec(
        "deepseek_v2_group", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8, routed_scaling_factor=2.0, kv_lora_rank=16,
            q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, topk_method="group_limited_greedy",
            n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1, norm_topk_prob=False, rms_norm_eps=1e-6,
            rope_parameters=dict(YARN, factor=4.0, mscale=1.0, mscale_all_dim=0.6, original_max_position_embeddings=64)),
        "DeepseekV2Config", seed=1002, hub=True,
        about="MLA with q_lora 24, softmax router over 4 groups of 2 keep 2 (group score = its best expert), top-3, weights x 2, "
              "mscale 1 and mscale_all_dim 0.6, so cos/sin are scaled as well as the softmax"),
    ModelSpec(
        "deepseek_v3_mtp", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, n_shared_experts=1, n_routed_experts=8, routed_scaling_factor=1.5, kv_lora_rank=16,
            q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, n_group=2, topk_group=1,
            num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True, num_mtp_layers=1, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "DeepseekV3Config", seed=1000, hub=True, mtp=1,
        about="deepseek_v3 whose file also holds a multi-token-prediction layer, model.layers.2.*: no part of logits, loss or "
              "training"),
    ModelSpec(
        "qwen2_moe", common(
            vocab_size=320, intermediate_size=80, moe_intermediate_size=16, shared_expert_intermediate_size=48,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_experts=8, num_experts_per_tok=2,
            norm_topk_prob=False, rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Qwen2MoeConfig", seed=1005, hub=True,
        about="q/k/v biases, 8 experts top-2 not renormalised, shared expert times sigmoid(shared_expert_gate)"),
    ModelSpec(
        "glm4", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, rms_norm_eps=1e-5, attention_bias=True, eos_token_id=[1, 2],
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
        "Glm4Config", seed=212, hub=True,
        about="norms before and after attention and MLP, interleaved rope on the first 8 of 16 dimensions, fused gate_up_proj, "
              "q/k/v biases"),
    ModelSpec(
        "glm4_moe", common(
            vocab_size=320, intermediate_size=96, moe_intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=24, n_shared_experts=1, n_routed_experts=8, routed_scaling_factor=1.5, n_group=1,
            topk_group=1, num_experts_per_tok=3, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=True,
            attention_bias=True, num_mtp_layers=0, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0, partial_rotary_factor=0.5)),
        "Glm4MoeConfig", seed=1001, hub=True,
        about="rotate-half rope on the first 12 of 24 dimensions, per-head q/k norm, q/k/v biases, layer 0 dense, then "
              "DeepSeek-V3's sigmoid router with one group, top-3 of 8, shared expert"),
    ModelSpec(
        "llama_bias", common(
            vocab_size=320, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "LlamaConfig", seed=214, hub=True, about="llama with biases on q, k, v, o, gate, up and down"),
    ModelSpec(
        "seed_oss", small(attention_bias=True, attention_out_bias=False, head_dim=12, rms_norm_eps=1e-6,
                          rope_parameters=dict(rope_type="default", rope_theta=10000000.0)),
        "SeedOssConfig", seed=1501, hub=True, about="llama with biases on q, k and v, heads of 12 with a hidden size of 48"),
    ModelSpec(
        "ernie4_5", small(use_bias=True, rms_norm_eps=1e-5, head_dim=16, tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        "Ernie4_5Config", seed=1502, hub=True, embed_std=0.1, about="llama with rope on neighbors and biases everywhere, tied"),
    ModelSpec(
        "ernie4_5_moe", small(
            moe_intermediate_size=12, moe_k=2, moe_num_experts=6, moe_num_shared_experts=2, moe_layer_start_index=1,
            moe_layer_end_index=-1, moe_layer_interval=1, rms_norm_eps=1e-5, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        "Ernie4_5_MoeConfig", seed=1523, hub=True, embed_std=0.1,
        about="ernie4_5 with a dense layer, then 6 experts top-2 chosen by softmax and a correction, and a shared MLP of 24"),
    ModelSpec(
        "exaone4", small(
            num_hidden_layers=4, rms_norm_eps=1e-5, head_dim=12, sliding_window=10, sliding_window_pattern=4,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Exaone4Config", seed=1504, hub=True,
        about="norms on the outputs of attention and MLP, per-head q/k norm, layers 0-2 window 10, layer 3 full without rope"),
    ModelSpec(
        "cohere", small(
            layer_norm_eps=1e-5, logit_scale=0.25, tie_word_embeddings=True, use_qk_norm=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "CohereConfig", seed=1508, hub=True, embed_std=0.1, final_norm=4.0,
        about="LayerNorm, attention and MLP side by side, rope on neighbors, tied, logits x 0.25"),
    ModelSpec(
        "cohere2", small(
            num_hidden_layers=4, head_dim=16, layer_norm_eps=1e-5, logit_scale=0.25, tie_word_embeddings=True,
            sliding_window=10, rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
        "Cohere2Config", seed=1509, hub=True, embed_std=0.1, final_norm=4.0,
        about="cohere with heads of 16; layers 0-2 window 10, layer 3 full without rope"),
    ModelSpec(
        "minimax_m2", small(
            intermediate_size=16, num_local_experts=6, num_experts_per_tok=2, head_dim=16, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=5000000.0, partial_rotary_factor=0.5)),
        "MiniMaxM2Config", seed=1655, hub=True,
        about="q/k norm over the whole projection, rope on 8 of 16, 6 experts top-2 by sigmoid and a correction"),
    ModelSpec(
        "hunyuan_v1_dense", small(
            rms_norm_eps=1e-5, head_dim=16, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0)),
        "HunYuanDenseV1Config", seed=1506, hub=True, embed_std=0.1,
        about="llama with per-head q/k norm after rope, whose base alpha raises, tied"),
    ModelSpec(
        "lfm2", small(
            vocab_size=128, num_hidden_layers=4, layer_types=["conv", "conv", "full_attention", "conv"], conv_L_cache=3, norm_eps=1e-5,
            block_multiple_of=16, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Lfm2Config", seed=1510, hub=True, embed_std=0.1, final_norm=2.0, seq=71, row1=66, docs=(67, 1, 2, 7),
        prompts=(1, 6, 66),
        about="gated short convolutions of 3, attention with per-head q/k norm in layer 2, MLP of 96 made 64, final norm "
              "embedding_norm, tied"),
    ModelSpec(
        "lfm2_moe", small(
            vocab_size=128, intermediate_size=64, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=4,
            norm_eps=1e-5, moe_intermediate_size=16, num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
            tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "Lfm2MoeConfig", seed=1518, hub=True, embed_std=0.1, final_norm=2.0, seq=71, row1=66, docs=(67, 1, 2, 7),
        prompts=(1, 6, 66),
        about="lfm2 with convolutions of 4 and, from layer 1 on, 6 experts top-2 by sigmoid and a bias"),
    ModelSpec(
        "qwen3_next", small(
            vocab_size=128, hidden_size=36, intermediate_size=64, num_hidden_layers=3, head_dim=16,
            layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
            linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=12, linear_conv_kernel_dim=4,
            mlp_only_layers=[0, 1], moe_intermediate_size=8, shared_expert_intermediate_size=12, num_experts=6,
            num_experts_per_tok=2, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25)),
        "Qwen3NextConfig", seed=1518, hub=True, mtp=1, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="the gated delta rule with 2 key and 4 value heads of 16 and 12, gated attention in layer 1 with rope on 4 of 16, "
              "norms x (1 + w), layer 2 with 6 experts top-2 and a gated shared expert"),
    ModelSpec(
        "qwen3_5", small(
            vocab_size=128, hidden_size=40, intermediate_size=72, num_hidden_layers=3, head_dim=16,
            layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
            linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=8, linear_conv_kernel_dim=3,
            rms_norm_eps=1e-6, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.5,
                                 mrope_section=[2, 1, 1], mrope_interleaved=True)),
        "Qwen3_5TextConfig", seed=1528, hub=True, mtp=1, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="qwen3_next with the delta rule's projections apart, 3 value heads a key head, convolutions of 3, all layers dense, "
              "tied, rope on 8 of 16"),
    ModelSpec(
        "qwen3_5_moe", small(
            vocab_size=128, hidden_size=36, num_hidden_layers=2, head_dim=16, layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=12,
            linear_conv_kernel_dim=4, moe_intermediate_size=10, shared_expert_intermediate_size=12, num_experts=4,
            num_experts_per_tok=2, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25,
                                 mrope_section=[1, 1, 0], mrope_interleaved=True)),
        "Qwen3_5MoeTextConfig", seed=1823, hub=True, mtp=1, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="qwen3_5 with 4 experts top-2 and a gated shared expert in both layers, untied, as many key as value heads"),
    ModelSpec(
        "olmo_hybrid", small(
            vocab_size=128, hidden_size=40, intermediate_size=64, num_hidden_layers=2, num_key_value_heads=4,
            layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=12, linear_value_head_dim=16, linear_conv_kernel_dim=4, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_type="default", rope_theta=None)),
        "OlmoHybridConfig", seed=1549, hub=True, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="the gated delta rule with beta below 2 and all projections and convolutions apart, normed before; attention as "
              "olmo2's, without rope"),
    ModelSpec(
        "granite4_dense", small(
            vocab_size=128, hidden_size=40, intermediate_size=48, shared_intermediate_size=48, num_hidden_layers=3,
            layer_types=["linear_attention", "full_attention", "linear_attention"], num_local_experts=0, num_experts_per_tok=0,
            mamba_n_heads=10, mamba_d_head=8, mamba_d_state=12, mamba_n_groups=2, mamba_d_conv=4, mamba_chunk_size=16,
            position_embedding_type="rope", rms_norm_eps=1e-5, embedding_multiplier=4.0, attention_multiplier=0.35,
            residual_multiplier=0.7, logits_scaling=1.6, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "GraniteMoeHybridConfig", seed=1530, hub=True, embed_std=0.1, final_norm=2.0, seq=71, row1=66, docs=(67, 1, 2, 7),
        prompts=(1, 6, 66),
        about="Mamba-2 with 10 heads of 8 in 2 groups and a state of 12, attention with rope in layer 1, granite's factors, no "
              "experts, tied"),
    ModelSpec(
        "granite4", small(
            vocab_size=128, hidden_size=36, intermediate_size=10, shared_intermediate_size=16, num_hidden_layers=2,
            layer_types=["linear_attention", "full_attention"], num_attention_heads=2, num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=2,
            mamba_n_heads=6, mamba_d_head=12, mamba_d_state=10, mamba_n_groups=1, mamba_d_conv=3, mamba_chunk_size=16,
            position_embedding_type="nope", rms_norm_eps=1e-5, embedding_multiplier=4.0, attention_multiplier=0.35,
            residual_multiplier=0.7, logits_scaling=1.6, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        "GraniteMoeHybridConfig", seed=1584, hub=True, embed_std=0.1, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="Mamba-2 with 6 heads of 12 in 1 group and a state of 10, attention without rope in layer 1, 4 experts top-2 and a "
              "shared MLP in all layers, granite's factors"),
    ModelSpec(
        "kimi_linear", small(
            vocab_size=128, hidden_size=36, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            mlp_layer_types=["dense", "dense", "sparse"], linear_num_heads=4, linear_head_dim=10, linear_conv_kernel_dim=4,
            kv_lora_rank=12, q_lora_rank=None, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8, moe_intermediate_size=8,
            num_experts=6, num_experts_per_token=2, num_shared_experts=1, num_expert_group=1, topk_group=1,
            routed_scaling_factor=2.446, rms_norm_eps=1e-5),
        "KimiLinearConfig", seed=1202, hub=True, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="the gated delta rule with a decay per channel (4 heads of 10) in layers 0 and 2, MLA without rope in layer 1, "
              "layers 0 and 1 dense, then 6 experts top-2 by sigmoid and a correction, and a shared one"),
    ModelSpec(
        "falcon_h1", small(
            vocab_size=128, hidden_size=40, intermediate_size=48, num_hidden_layers=2, head_dim=12, rms_norm_eps=1e-5,
            mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=10, mamba_d_conv=4,
            mamba_chunk_size=16, mamba_rms_norm=False, mamba_norm_before_gate=False, embedding_multiplier=3.5,
            lm_head_multiplier=0.4, key_multiplier=0.6, attention_in_multiplier=0.9, attention_out_multiplier=1.2,
            ssm_in_multiplier=0.6, ssm_out_multiplier=0.8, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7],
            mlp_multipliers=[0.9, 0.7], tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1e11)),
        "FalconH1Config", seed=1561, hub=True, embed_std=0.1, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="attention and Mamba-2 (6 heads of 8 in 2 groups, state of 10, no norm) side by side in both layers, eleven "
              "factors, untied"),
    ModelSpec(
        "gemma4", small(
            vocab_size=128, hidden_size=40, intermediate_size=32, num_hidden_layers=4, num_key_value_heads=1, head_dim=12,
            global_head_dim=16, layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=10,
            num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=6, vocab_size_per_layer_input=128,
            final_logit_softcapping=6.0, tie_word_embeddings=True, pad_token_id=0),
        "Gemma4TextConfig", seed=1610, hub=True, embed_std=0.1, final_norm=2.0,
        about="heads of 12 in sliding and 16 in full layers, layers 2 and 3 use the keys and values of 0 and 1 and have MLPs "
              "twice as wide, per-layer embeddings of 6, cap 6 on logits, tied"),
    ModelSpec(
        "gemma4_moe", small(
            vocab_size=128, hidden_size=36, intermediate_size=24, num_hidden_layers=3, num_key_value_heads=2, head_dim=8,
            global_head_dim=12, num_global_key_value_heads=1, attention_k_eq_v=True,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"], sliding_window=10,
            hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=10,
            tie_word_embeddings=True, pad_token_id=0,
            rope_parameters=dict(full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1000000.0),
                                 sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
        "Gemma4TextConfig", seed=1673, hub=True, embed_std=0.1, final_norm=2.0,
        about="an MLP and 4 experts top-2 side by side in every layer, full layers without v_proj (values = keys before their "
              "norm) and with 1 KV head of 12, sliding ones with 2 of 8, tied"),
    ModelSpec(
        "gemma3n", small(
            vocab_size=128, hidden_size=40, intermediate_size=[40] * 4, num_hidden_layers=4, num_key_value_heads=1,
            head_dim=12, layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=10, num_kv_shared_layers=2,
            hidden_size_per_layer_input=6, vocab_size_per_layer_input=100, altup_num_inputs=3, altup_active_idx=1, laurel_rank=8,
            activation_sparsity_pattern=[0.8, 0.0, 0.5, 0.0], final_logit_softcapping=6.0, tie_word_embeddings=True,
            pad_token_id=0),
        "Gemma3nTextConfig", seed=1630, hub=True, embed_std=0.1, final_norm=2.0,
        about="AltUp with 3 streams of which layers compute the second, a path of rank 8 beside attention, per-layer embeddings of 6 "
              "(ids from 100 on use row 0), sparse gates in layers 0 and 2, layers 2 and 3 use the keys and values of 0 and 1, "
              "cap 6 on logits, tied"),
    ModelSpec(
        "nemotron_h", small(
            vocab_size=128, hidden_size=40, intermediate_size=48, head_dim=16,
            layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention", "mlp"], mamba_num_heads=6,
            mamba_head_dim=12, n_groups=2, ssm_state_size=10, conv_kernel=4, chunk_size=16, layer_norm_epsilon=1e-5),
        "NemotronHConfig", seed=1567, hub=True, embed_std=0.5, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="layers of one part: Mamba-2 (6 heads of 12 in 2 groups, state of 10), MLP with relu squared, attention without "
              "rope, Mamba-2, MLP; untied"),
    ModelSpec(
        "nemotron_h_moe", small(
            vocab_size=128, hidden_size=36, intermediate_size=48, head_dim=12,
            layers_block_type=["linear_attention", "moe", "full_attention", "moe"], mamba_num_heads=4, mamba_head_dim=10,
            n_groups=1, ssm_state_size=8, conv_kernel=3, chunk_size=16, layer_norm_epsilon=1e-5, n_routed_experts=6,
            num_experts_per_tok=2, moe_intermediate_size=12, moe_latent_size=16, moe_shared_expert_intermediate_size=20,
            routed_scaling_factor=2.5, n_group=1, topk_group=1, norm_topk_prob=True),
        "NemotronHConfig", seed=1573, hub=True, embed_std=0.5, seq=71, row1=66, docs=(67, 1, 2, 7), prompts=(1, 6, 66),
        about="nemotron_h with experts (6, top-2, in a latent of 16) and a shared one outside of the latent, 1 group of Mamba-2"),
    ModelSpec(
        "ministral3", small(
            rms_norm_eps=1e-5, head_dim=12, sliding_window=None,
            rope_parameters=dict(rope_type="yarn", rope_theta=1000000.0, factor=16.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                                 mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=8)),
        "Ministral3Config", seed=1507, hub=True,
        about="llama with YaRN, queries x (1 + 0.1 ln(1 + floor(position / 8)))"),
    ModelSpec(
        "mimo_v2_flash", small(
            vocab_size=128, hidden_size=36, intermediate_size=48, num_hidden_layers=6, num_key_value_heads=1, head_dim=18,
            v_head_dim=12, sliding_window=10, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2),
        "MiMoV2FlashConfig", seed=1520, hub=True,
        about="q/k heads of 18, v heads of 12 times 0.707, rope on 6 of 18; layers 0 and 5 full with 1 kv head, the others "
              "window 10 with 2 kv heads and sinks; layer 0 dense, then 4 experts top-2 by sigmoid and a correction"),
    ModelSpec(
        "llama4", small(
            vocab_size=128, hidden_size=40, intermediate_size=16, intermediate_size_mlp=48, num_hidden_layers=4, head_dim=16,
            num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, attention_chunk_size=12, floor_scale=8,
            attn_scale=0.1, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        "Llama4TextConfig", seed=1511, hub=True,
        about="layers 0-2 with rope on neighbors, unweighted q/k norm after it and attention in chunks of 12, layer 3 without "
              "rope, full, queries x (1 + 0.1 ln(1 + floor((position + 1) / 8))); layers 1 and 3: one of 4 experts, whose input "
              "is multiplied by the sigmoid, and a shared expert"),
    ModelSpec(
        "deepseek_v32", small(
            vocab_size=128, hidden_size=40, intermediate_size=48, moe_intermediate_size=12, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=6, routed_scaling_factor=2.5,
            kv_lora_rank=16, q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=12, n_group=2, topk_group=1,
            num_experts_per_tok=2, first_k_dense_replace=2, norm_topk_prob=True, rms_norm_eps=1e-6, index_topk=8,
            index_head_dim=16, index_n_heads=8,
            rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                                 mscale_all_dim=1.0, original_max_position_embeddings=64)),
        "DeepseekV32Config", seed=1600, hub=True,
        about="MLA whose queries see the 8 keys that an indexer (8 heads of 16, rope in halves) scores highest; deepseek_v3's "
              "router in layer 2; YaRN; the indexer is frozen, as no loss has a gradient of it"),
    ModelSpec(
        "glm_moe_dsa", small(
            vocab_size=128, hidden_size=40, intermediate_size=48, moe_intermediate_size=12, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=6, routed_scaling_factor=2.5,
            kv_lora_rank=16, q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=16, n_group=1, topk_group=1,
            num_experts_per_tok=2, first_k_dense_replace=3, norm_topk_prob=True, rms_norm_eps=1e-5, index_topk=8,
            index_head_dim=12, index_n_heads=8, indexer_types=["full", "full", "shared", "full"],
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        "GlmMoeDsaConfig", seed=1620, hub=True,
        about="deepseek_v32 with rope on neighbors in the indexer, too, one expert group, no YaRN; layer 2 has no indexer and "
              "uses layer 1's choice; the indexers are frozen"),
]

TRAIN = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_grad_norm=1.0, steps=5)


ROUTERS = (".gate.weight", ".router.weight", ".router.layer.weight")


def rule_of(name, shape, kind, spec):
    """(mean, std) of a checkpoint tensor.  Livelier than the usual 0.02: attention is peaked, routers
    are decided, norm weights and biases differ from 1 and 0, gradients exceed the clip."""
    one_plus = kind.startswith(("gemma2", "gemma3_", "qwen3_next", "qwen3_5"))  # norms multiply by 1 + weight
    if ".indexer.k_norm." in name and name.endswith("weight"):
        return 1.0, 0.1
    if name.endswith("A_log"):                         # memories of one to a hundred tokens
        return -2.0, 1.5
    one_plus = one_plus and "linear_attn" not in name
    if kind.startswith(("gemma3n", "gemma4")) and "q_norm" in name:     # nothing else divides scores by √head_dim
        return 0.3, 0.03
    if kind.startswith(("gemma3n", "gemma4")) and ".post_" in name:     # a smaller stream
        return 0.6, 0.06
    if name.endswith("bias"):
        return 0.0, 0.1
    if len(shape) == 1:
        factor = spec.final_norm if name in ("model.norm.weight", "model.embedding_norm.weight", "model.final_layernorm.weight",
                                      "backbone.norm_f.weight") else 1.0
        return (factor - 1, 0.2 * factor) if one_plus else (factor, 0.1 * factor)
    if "embed_tokens" in name or name == "backbone.embeddings.weight":
        return 0.0, spec.embed_std
    if name.endswith(".router.proj.weight"):           # of a normed row over the root of its length
        return 0.0, 1.5
    if name.endswith("lm_head.weight") or name.endswith(ROUTERS):
        return 0.0, 1.5 / math.sqrt(shape[-1])
    return 0.0, 1.0 / math.sqrt(shape[-1])


def weights_by_rule(spec, kind, shapes):
    """The contents of weights.json, and of the model.safetensors that it stands for."""
    tensors = []
    for name, shape in sorted(shapes.items(), key=lambda item: item[0].encode()):
        mean, std = (float(f"{x:.6g}") for x in rule_of(name, shape, kind, spec))
        tensors.append(dict(name=name, shape=shape, mean=mean, std=std))
    recipe = dict(seed=spec.seed, tensors=tensors)
    data = rule.weights_file(recipe)
    return dict(seed=spec.seed, sha256=hashlib.sha256(data).hexdigest(), tensors=tensors), data


def save_weights(root, recipe, data):
    """weights.json with a line for each tensor."""
    (root / "model.safetensors").write_bytes(data)
    head = json.dumps({k: v for k, v in recipe.items() if k != "tensors"})
    lines = ",\n  ".join(json.dumps(t) for t in recipe["tensors"])
    (root / "weights.json").write_text(f'{head[:-1]}, "tensors": [\n  {lines}]}}\n')


def mtp_shapes(spec, config, shapes):
    """Tensors of the multi-token-prediction layers, under the published names: some, of those beside the layers; or all, of
    those that follow the last one."""
    out, hidden, n = {}, config.hidden_size, config.num_hidden_layers
    if spec.mtp and config.model_type.startswith("qwen3_"):
        return {"mtp.fc.weight": [hidden, 2 * hidden], "mtp.norm.weight": [hidden]}
    for k in range(spec.mtp):
        pre, last = f"model.layers.{n + k}.", f"model.layers.{n - 1}."
        out.update({pre + name[len(last):]: shape for name, shape in shapes.items() if name.startswith(last)})
        out.update({f"{pre}{name}.weight": [hidden] for name in ("enorm", "hnorm", "shared_head.norm")})
        out[pre + "eh_proj.weight"] = [hidden, 2 * hidden]
        out[pre + "embed_tokens.weight"] = out[pre + "shared_head.head.weight"] = [config.vocab_size, hidden]
    return out


def init_mxfp4(model, seed):
    """gpt_oss: every weight exact in bf16, experts in MXFP4, which no rule makes."""
    g = gen(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.copy_(0.1 * randn(g, *p.shape))
            elif name.endswith("sinks"):
                p.copy_(randn(g, *p.shape))
            elif p.ndim == 1:
                p.copy_(1 + 0.1 * randn(g, *p.shape))
            elif "embed_tokens" in name:
                p.copy_(0.2 * randn(g, *p.shape))
            elif name.endswith("lm_head.weight") or name.endswith(ROUTERS):
                p.copy_(1.5 / math.sqrt(p.shape[-1]) * randn(g, *p.shape))
            elif p.ndim == 3:                       # [expert, in, out]; the clamp bites
                size = model.config.swiglu_limit / 1.6 if "gate_up" in name else 1 / model.config.swiglu_limit
                p.copy_(size / math.sqrt(p.shape[-2]) * randn(g, *p.shape))
            else:
                p.copy_(1.0 / math.sqrt(p.shape[-1]) * randn(g, *p.shape))
    round_weights(model)


def eager(config):
    """Keyword arguments that keep fused kernels out."""
    kw = dict(dtype=torch.float32, attn_implementation="eager")
    return dict(kw, experts_implementation="eager") if "expert" in json.dumps(config.to_dict()) else kw


def write_folder(spec, root):
    """The HF folder of a model, with weights.json where the weights follow a rule."""
    import transformers
    config = getattr(transformers, spec.config_class)(**copy.deepcopy(spec.config))
    model = transformers.AutoModelForCausalLM.from_config(config, **eager(config))
    if spec.bf16_exact:
        init_mxfp4(model, spec.seed)
    model.save_pretrained(root)
    saved = load_file(str(root / "model.safetensors"))
    if spec.bf16_exact:
        save_file({name: t.bfloat16() for name, t in saved.items()}, str(root / "model.safetensors"),
                  metadata=dict(format="pt"))
        return
    saved = published(config, saved)
    shapes = {name: list(t.shape) for name, t in saved.items()}
    shapes.update(mtp_shapes(spec, config, shapes))
    save_weights(root, *weights_by_rule(spec, config.model_type, shapes))


def load_folder(spec, root):
    import transformers
    config = transformers.AutoConfig.from_pretrained(root)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(root, output_loading_info=True, **eager(config))
    extra = (f"model.layers.{model.config.num_hidden_layers}.", "mtp.")
    assert not info["missing_keys"] and all(spec.mtp and k.startswith(extra) for k in info["unexpected_keys"])
    return model.eval()


def build_model(spec):
    with tempfile.TemporaryDirectory() as folder:
        write_folder(spec, Path(folder))
        return load_folder(spec, Path(folder))


def to_checkpoint_names(model, named):
    """Module tensors -> the names and shapes of model.safetensors (the fused
    3-D expert tensors of transformers 5 become one tensor per expert)."""
    from transformers.core_model_loading import revert_weight_conversion
    out = {k: v.contiguous() for k, v in revert_weight_conversion(model, dict(named)).items()}
    return published(model.config, out)


def published(cfg, named):
    """The names and shapes of published files, where transformers saves others and loads both."""
    made = dict(olmo_hybrid=published_olmo_hybrid, kimi_linear=published_kimi_linear).get(cfg.model_type)
    return made(cfg, named) if made else named


def published_kimi_linear(cfg, named):
    """transformers saves dense layers' MLPs under the module of experts."""
    dense = [f"layers.{i}.block_sparse_moe." for i, t in enumerate(cfg.mlp_layer_types) if t == "dense"]
    return {k.replace("block_sparse_moe", "mlp") if any(d in k for d in dense) else k: v for k, v in named.items()}


def published_olmo_hybrid(cfg, named):
    """transformers loads the published names and shapes, and saves others: convolutions in equal thirds, and the norm
    behind a full layer's attention as feedforward_layer_norm."""
    out = dict(named)
    key, value = cfg.linear_num_key_heads * cfg.linear_key_head_dim, cfg.linear_num_value_heads * cfg.linear_value_head_dim
    for first in [k for k in named if k.endswith("q_conv1d.weight")]:
        parts = [first.replace("q_conv1d", f"{c}_conv1d") for c in "qkv"]
        cut = torch.cat([named[p] for p in parts]).split([key, key, value])
        out.update(zip(parts, (t.contiguous() for t in cut)))
    full = [f"layers.{i}.feedforward_layer_norm" for i, t in enumerate(cfg.layer_types) if t == "full_attention"]
    return {k.replace("feedforward_layer_norm", "post_attention_layernorm") if any(f in k for f in full) else k: v
            for k, v in out.items()}


def legacy_config(cfg):
    """The same config in the spelling of transformers 4 and most hub files."""
    out = {k: v for k, v in cfg.items() if k not in ("rope_parameters", "dtype", "transformers_version")}
    rope = dict(cfg["rope_parameters"])
    out["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    out["rope_scaling"] = None if kind == "default" else dict(rope, type=kind, rope_type=kind)
    out["torch_dtype"] = "float32"
    out["transformers_version"] = "4.51.0"
    if cfg["model_type"] in ("qwen3_moe", "qwen2_moe") and "num_local_experts" in out:
        out["num_experts"] = out.pop("num_local_experts")
    return dict(sorted(out.items()))


def hub_config(cfg, spec):
    """The same config as the family's published checkpoints spell it: keys that
    they leave to the family's default are absent, keys that they carry along
    are there."""
    kind = cfg["model_type"]
    if kind == "gemma4_text":
        full = next(iter(cfg["per_layer_config"].values()))
        out = {k: v for k, v in cfg.items() if k not in ("per_layer_config", "dtype")}
        out.update(global_head_dim=full["head_dim"], torch_dtype="float32", transformers_version="4.57.1")
        if cfg["attention_k_eq_v"]:
            out["num_global_key_value_heads"] = full["num_key_value_heads"]
        return dict(sorted(out.items()))
    out = {k: v for k, v in cfg.items() if k not in ("rope_parameters", "dtype")}
    if kind == "nemotron_h":
        letters = dict(linear_attention="M", full_attention="*", mlp="-", moe="E")
        out["hybrid_override_pattern"] = "".join(letters[t] for t in out.pop("layers_block_type"))
        out.update(num_hidden_layers=len(out["hybrid_override_pattern"]), torch_dtype="float32", transformers_version="4.57.1")
        for key in ("time_step_limit", "mtp_layers_block_type"):
            del out[key]
        return dict(sorted(out.items()))
    rope = copy.deepcopy(cfg.get("rope_parameters") or dict(rope_type="default", rope_theta=10000.0))
    if "full_attention" in rope:
        out["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    out["rope_theta"] = rope.pop("rope_theta")
    part = rope.pop("partial_rotary_factor", 1.0)
    if part != 1.0 or kind.startswith("glm4"):
        out["partial_rotary_factor"] = part
    name = rope.pop("rope_type")
    if "original_max_position_embeddings" in out:       # phi3 has it outside only
        rope.pop("original_max_position_embeddings", None)
    word = "rope_type" if kind in ("gemma3_text", "gpt_oss") else "type"
    out["rope_scaling"] = None if name == "default" else {
        **rope, word: name}
    out["torch_dtype"] = "float32"
    out["transformers_version"] = "4.57.1"

    def drop(*keys):
        for k in keys:
            out.pop(k, None)
    if kind == "gemma3n_text":
        drop("tie_word_embeddings", "use_bidirectional_attention")
    elif kind.startswith("gemma"):
        first_full = cfg["layer_types"].index("full_attention")
        drop("layer_types", "use_bidirectional_attention", "tie_word_embeddings", "_sliding_window_pattern")
        out["cache_implementation"] = "hybrid"
        if kind == "gemma2":
            out["hidden_act"] = out["hidden_activation"]
        else:
            out["sliding_window_pattern"] = first_full + 1
    elif kind == "smollm3":
        out.update(max_window_layers=28, pretraining_tp=2)
        if cfg["tie_word_embeddings"]:
            drop("tie_word_embeddings")
    elif kind == "cohere":
        out["model_max_length"] = cfg["max_position_embeddings"]
        drop("tie_word_embeddings", "head_dim")
    elif kind == "cohere2":
        drop("layer_types", "tie_word_embeddings")
        out.update(sliding_window_pattern=4, layer_switch=4, order_of_interleaved_layers="local_attn_first",
                   position_embedding_type="rope_gptj", rotary_pct=1.0, cache_implementation="hybrid",
                   use_embedding_sharing=True, use_gated_activation=True, use_parallel_block=True,
                   use_parallel_embedding=True)
    elif kind == "mimo_v2_flash":       # transformers reads none of these keys: the model has its defaults
        heads, slides = cfg["num_key_value_heads"], [int(t == "sliding_attention") for t in cfg["layer_types"]]
        drop("layer_types", "mlp_layer_types", "rms_norm_eps", "rope_local_base_freq", "rope_scaling")
        out.update(hybrid_layer_pattern=slides, moe_layer_freq=[int(t == "sparse") for t in cfg["mlp_layer_types"]],
                   swa_rope_theta=cfg["rope_parameters"]["sliding_attention"]["rope_theta"],
                   swa_num_attention_heads=cfg["num_attention_heads"], swa_num_key_value_heads=2 * heads,
                   swa_head_dim=cfg["head_dim"], swa_v_head_dim=cfg["v_head_dim"], layernorm_epsilon=cfg["rms_norm_eps"],
                   sliding_window=cfg["sliding_window"] - 1, sliding_window_size=cfg["sliding_window"] - 1,
                   n_shared_experts=None, routed_scaling_factor=None, scoring_func="sigmoid", topk_method="noaux_tc",
                   add_full_attention_sink_bias=False, add_swa_attention_sink_bias=True)
    elif kind == "llama4_text":
        drop("layer_types", "moe_layers")
        out.update(no_rope_layers=[], for_llm_compressor=False)
    elif kind == "exaone4":
        out["sliding_window_pattern"] = "LLLG"
    elif kind == "minimax_m2":
        drop("partial_rotary_factor")
        out.update(rotary_dim=8, qk_norm_type="per_layer", use_qk_norm=True, use_routing_bias=True, scoring_func="sigmoid",
                   shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1)
    elif kind == "granitemoehybrid":
        drop("time_step_limit")
        out["layer_types"] = ["attention" if t == "full_attention" else "mamba" for t in cfg["layer_types"]]
    elif kind == "falcon_h1":
        drop("time_step_limit")
    elif kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        drop("layer_types")
        out["full_attention_interval"] = cfg["layer_types"].index("full_attention") + 1
    elif kind == "kimi_linear":
        drop("layer_types", "mlp_layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "head_dim")
        numbers = {t: [i + 1 for i, other in enumerate(cfg["layer_types"]) if other == t] for t in set(cfg["layer_types"])}
        out.update(linear_attn_config=dict(full_attn_layers=numbers["full_attention"], kda_layers=numbers["linear_attention"],
                                           head_dim=cfg["linear_head_dim"], num_heads=cfg["linear_num_heads"],
                                           short_conv_kernel_size=cfg["linear_conv_kernel_dim"]),
                   first_k_dense_replace=cfg["mlp_layer_types"].count("dense"), mla_use_nope=True, moe_layer_freq=1,
                   moe_router_activation_func="sigmoid", num_nextn_predict_layers=0, use_grouped_topk=True)
    elif kind == "olmo_hybrid":
        drop("layer_types", "rope_theta", "rope_scaling", "linear_allow_neg_eigval")
        out["rope_parameters"] = cfg["rope_parameters"]
    elif kind == "lfm2":
        full = [i for i, t in enumerate(cfg["layer_types"]) if t == "full_attention"]
        drop("layer_types", "intermediate_size")
        out.update(full_attn_idxs=full, block_ff_dim=cfg["intermediate_size"], block_dim=cfg["hidden_size"],
                   conv_dim=cfg["hidden_size"], block_norm_eps=cfg["norm_eps"], block_use_swiglu=True, tie_embedding=True,
                   theta=out["rope_theta"], num_heads=cfg["num_attention_heads"], use_pos_enc=True)
    elif kind in ("deepseek_v32", "glm_moe_dsa"):
        drop("layer_types", "mlp_layer_types", "head_dim", "qk_head_dim", "mlp_bias", "output_router_logits")
        out.update(moe_layer_freq=1, ep_size=1, scoring_func="sigmoid", topk_method="noaux_tc")
        if out.pop("indexer_types", None):
            out["index_topk_pattern"] = "".join(t[0].upper() for t in cfg["indexer_types"])
    elif kind == "gpt_oss":
        drop("swiglu_alpha")
        out.update(experts_per_token=cfg["num_experts_per_tok"],
                   initial_context_length=cfg["rope_parameters"]["original_max_position_embeddings"])
    elif kind == "qwen2_moe":
        drop("layer_types", "qkv_bias", "mlp_only_layers")
        out.update(sliding_window=32, use_sliding_window=False, max_window_layers=1)
        if "num_local_experts" in out:
            out["num_experts"] = out.pop("num_local_experts")
    elif kind in ("deepseek_v2", "deepseek_v3"):
        drop("head_dim", "qk_head_dim", "rope_interleave", "mlp_bias", "output_router_logits")
        out.update(moe_layer_freq=1, ep_size=1, aux_loss_alpha=0.001, seq_aux=True,
                   scoring_func="sigmoid" if kind == "deepseek_v3" else "softmax")
        if kind == "deepseek_v3":
            out["topk_method"] = "noaux_tc"
    return dict(sorted(out.items()))


# ---- gpt_oss: weights exact in bf16, experts exact in MXFP4
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def to_mxfp4(w):
    """[..., rows, n] -> codes 0..15 [..., rows, n/32, 32] and scale bytes
    [..., rows, n/32]: blocks of 32 along the last dimension, exponent
    floor(log2 amax) - 2, nearest value."""
    x = w.reshape(*w.shape[:-1], -1, 32).double()
    e = torch.floor(torch.log2(x.abs().amax(-1))) - 2
    y = x / torch.exp2(e)[..., None]
    grid = torch.tensor(E2M1, dtype=torch.float64)
    codes = (y.abs()[..., None] - grid).abs().argmin(-1)
    return (codes + 8 * (y < 0)).to(torch.uint8), (e + 127).to(torch.uint8)


def from_mxfp4(codes, scales):
    grid = torch.tensor(E2M1 + tuple(-v for v in E2M1), dtype=torch.float64)
    x = grid[codes.long()] * torch.exp2(scales.double() - 127)[..., None]
    return x.flatten(-2).float()


def round_weights(model):
    """The expert tensors [expert, in, out] to MXFP4 along `in` (what the
    published files hold, transposed), everything else to bf16."""
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 3:
                spread = torch.exp2(torch.arange(p.shape[-1]) % 5 - 2.0)       # different exponents
                p.copy_(from_mxfp4(*to_mxfp4((p * spread / 2).transpose(1, 2))).transpose(1, 2))
            p.copy_(p.bfloat16().float())


def write_mxfp4(model, root, batch, logits):
    """The folder as gpt-oss is published: experts in 4-bit blocks, the rest in
    bf16.  Proves that transformers' own dequantiser gives the same model."""
    import transformers
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    out = {}
    for name, t in load_file(str(root / "model.safetensors")).items():
        if t.ndim != 3:
            out[name] = t
            continue
        t = t.float()
        codes, scales = to_mxfp4(t.transpose(1, 2).contiguous())
        blocks = codes[..., 0::2] | (codes[..., 1::2] << 4)                    # the even element is the low nibble
        assert (from_mxfp4(codes, scales).transpose(1, 2) == t).all(), name
        assert (convert_moe_packed_tensors(blocks, scales, dtype=torch.float32) == t).all(), name
        out[name + "_blocks"], out[name + "_scales"] = blocks.contiguous(), scales.contiguous()
    folder = root / "mxfp4"
    folder.mkdir()
    save_file(out, str(folder / "model.safetensors"), metadata=dict(format="pt"))
    cfg = json.loads((root / "config.legacy.json").read_text())
    cfg.update(torch_dtype="bfloat16", quantization_config=dict(
        quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                      "model.embed_tokens", "lm_head"]))
    save_json(folder / "config.json", dict(sorted(cfg.items())))
    again = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        quantization_config=transformers.Mxfp4Config(dequantize=True)).eval()
    with torch.no_grad():
        got = again(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    assert max_diff(got, logits) == 0.0, max_diff(got, logits)


def stream_by_stream(hidden):
    """AltUp's streams [n, B, S, D] as rows [B, S, n * D]."""
    return hidden.permute(1, 2, 0, 3).flatten(2) if hidden.ndim == 4 else hidden


class Recorder:
    """Forward hooks that keep the activations the README names."""

    def __init__(self, model):
        self.data, self.handles = {}, []
        self.active = getattr(model.config, "num_experts_per_tok", None)
        base = model.model
        self.handles.append(base.layers[0].register_forward_pre_hook(self.first_hook))
        self.add(final_norm_of(base), "hidden_norm")
        for i, layer in enumerate(base.layers):
            self.add(layer, f"hidden_{i + 1}")
            for kind, mixer in mixers_of(layer):
                self.add(mixer, f"{kind}_out_{i}")
                if getattr(mixer, "indexer", None) is not None:
                    self.handles.append(mixer.indexer.register_forward_hook(self.index_hook(i)))
            beside = getattr(layer, "block_sparse_moe", None) or getattr(layer, "router", None)
            if beside is None and mlp_of(layer):      # else a part of the branch
                self.add(mlp_of(layer), f"mlp_out_{i}")
            router = router_of(layer)
            if hasattr(router, "proj"):     # the router itself returns probabilities
                self.add(router.proj, f"router_logits_{i}")
            if router is not None:
                self.handles.append(router.register_forward_hook(self.router_hook(i)))

    def first_hook(self, _m, args):
        self.data["hidden_0"] = stream_by_stream(args[0].detach())      # after any scaling of the embeddings

    def add(self, module, key):
        def hook(_m, _i, out):
            self.data[key] = stream_by_stream((out[0] if isinstance(out, tuple) else out).detach())
        self.handles.append(module.register_forward_hook(hook))

    def router_hook(self, i):
        def hook(_m, _i, out):
            if len(out) == 2:                           # llama4: the weights of all experts, 0 but for those chosen
                index = out[0].topk(self.active, dim=-1)[1]
                out = out[1], out[0].gather(-1, index), index
            logits, weights, index = (o.detach() for o in out)
            index, order = index.sort(dim=-1)
            self.data.setdefault(f"router_logits_{i}", logits)
            self.data[f"router_experts_{i}"] = index
            self.data[f"router_weights_{i}"] = weights.gather(-1, order)
        return hook

    def index_hook(self, i):
        """Chosen positions in order, -1 past the last: without those that the causal mask hides."""
        def hook(module, _i, out):
            seen = torch.arange(out.shape[1])[:, None]
            order = torch.where(out > seen, out.shape[1], out.long()).sort(-1)[0]
            order = torch.where(order == out.shape[1], -1, order)
            self.data[f"index_topk_{i}"] = F.pad(order, (0, module.index_topk - order.shape[-1]), value=-1)
        return hook

    def close(self):
        for h in self.handles:
            h.remove()
        return self.data


def final_norm_of(base):
    return next(getattr(base, name) for name in ("norm", "embedding_norm", "final_layernorm", "norm_f") if hasattr(base, name))


def rotary_of(base):
    return getattr(base, "rotary_emb", None) or getattr(base, "pos_emb", None)


def mixers_of(layer):
    """What mixes tokens, and the word for each in the files."""
    kinds = dict(self_attn="attn", linear_attn="linear", conv="conv", mamba="mamba", mixer="mixer")
    return [(kind, getattr(layer, name)) for name, kind in kinds.items() if getattr(layer, name, None) is not None]


def mlp_of(layer):
    return next((getattr(layer, name) for name in ("mlp", "feed_forward", "shared_mlp") if hasattr(layer, name)), None)


def router_of(layer):
    mlp = getattr(layer, "block_sparse_moe", None) or mlp_of(layer) or layer.mixer
    if getattr(layer, "router", None) is not None:
        return layer.router
    return getattr(mlp, "gate", None) or getattr(mlp, "router", None)


def record(model, **inputs):
    rec = Recorder(model)
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits
    data = rec.close()
    data["logits"] = logits.detach()
    return data


def nll_terms(logits, labels):
    """Per-position -log p(labels[t+1]), at least in fp32; 0 where the label is -100."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    logp = F.log_softmax(wide[:, :-1], dim=-1)
    target = labels[:, 1:]
    keep = target != IGNORE
    picked = logp.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * keep), keep


def mean_loss(model, batch):
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
    nll, keep = nll_terms(logits, batch["labels"])
    return nll.sum() / keep.sum()


def make_batch(spec, vocab, g):
    """Two rows, the second right-padded; labels masked at a prompt prefix, at
    padding and at a few places inside."""
    ids = randint(g, 3, vocab, 2, spec.seq)
    mask = torch.ones(2, spec.seq, dtype=torch.long)
    mask[1, spec.row1:] = 0
    labels = ids.clone()
    labels[0, :6] = IGNORE
    labels[1, :3] = IGNORE
    labels[torch.rand(2, spec.seq, generator=g) < 0.15] = IGNORE
    labels[mask == 0] = IGNORE
    ids[mask == 0] = spec.config.get("pad_token_id") or 0
    return dict(input_ids=ids, attention_mask=mask, labels=labels)


def make_packed(spec, vocab, g):
    total = sum(spec.docs)
    ids = randint(g, 3, vocab, total)
    labels = ids.clone()
    labels[torch.rand(total, generator=g) < 0.15] = IGNORE
    bounds = [0]
    for n in spec.docs:
        labels[bounds[-1]] = IGNORE          # a document's first token is never predicted
        bounds.append(bounds[-1] + n)
    pos = torch.cat([torch.arange(n) for n in spec.docs])
    return dict(input_ids=ids[None], position_ids=pos[None], labels=labels[None],
                cu_seqlens=torch.tensor(bounds))


def packed_by_document(model, packed):
    """Runs the documents one at a time: what packing must reproduce."""
    b = packed["cu_seqlens"].tolist()
    pieces, total, count = [], 0.0, 0
    for lo, hi in zip(b[:-1], b[1:]):
        out = record(model, input_ids=packed["input_ids"][:, lo:hi])
        pieces.append({k: (v if v.ndim == 3 else v[None]) for k, v in out.items()})
    rec = {k: torch.cat([p[k] for p in pieces], dim=1) for k in pieces[0]}
    for lo, hi in zip(b[:-1], b[1:]):
        if hi - lo < 2:
            continue
        logits = model(input_ids=packed["input_ids"][:, lo:hi], use_cache=False).logits
        nll, keep = nll_terms(logits, packed["labels"][:, lo:hi])
        total = total + nll.sum()
        count += int(keep.sum())
    return rec, total, count


MTP_WEIGHT = 0.3


def mtp_module(model, root):
    """transformers' module of the layer for multi-token prediction, with the model's own embedding and head."""
    from transformers.modeling_layers import MtpModel
    n = model.config.num_hidden_layers
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{n}.*"]      # where its loader looks
    model.config._name_or_path = str(root)
    return MtpModel.from_pretrained(model, device_map={"": "cpu"}).eval()


def mtp_by_document(model, mtp, packed):
    """(normed outputs [1, T, D], sum of -log p of the tokens two ahead): position t has the normed state of t and
    the embedding of t + 1; a document's last position predicts nothing, the one before it has no label."""
    from transformers.cache_utils import MtpCache
    b = packed["cu_seqlens"].tolist()
    pieces, total = [], 0.0
    for lo, hi in zip(b[:-1], b[1:]):
        ids, labels = packed["input_ids"][:, lo:hi], packed["labels"][:, lo:hi]
        made = torch.zeros(1, hi - lo, model.config.hidden_size)
        if hi - lo > 1:
            states = model.model(input_ids=ids, use_cache=False).last_hidden_state
            h = mtp.forward_layer(0, states[:, :-1], torch.arange(1, hi - lo)[None],
                                  MtpCache(config=model.config.get_mtp_config()), input_ids=ids[:, 1:])
            made = torch.cat([h, made[:, :1]], dim=1)
            total = total + nll_terms(model.lm_head(h), labels[:, 1:])[0].sum()
        pieces.append(made.detach())
    return torch.cat(pieces, dim=1), total


def write_mtp(model, root, packed):
    """Gradients of the packed documents' loss + MTP_WEIGHT times that of the layer, both over the labels of the
    loss; returns the figures."""
    mtp = mtp_module(model, root)
    n = model.config.num_hidden_layers
    gold = root / "golden"
    _, total, count = packed_by_document(model, packed)
    hidden, ahead = mtp_by_document(model, mtp, packed)
    mtp.zero_grad(set_to_none=True)
    grads = grads_of(model, (total + MTP_WEIGHT * ahead) / count)
    block = {f"model.layers.{n - 1}.{name.removeprefix('mtp_block.')}": p.grad
             for name, p in mtp.layers[0].named_parameters() if name.startswith("mtp_block.")}
    named = to_checkpoint_names(model, grads)
    named.update({k.replace(f"layers.{n - 1}.", f"layers.{n}."): g
                  for k, g in to_checkpoint_names(model, block).items()})
    for own, name in (("enorm", "enorm"), ("hnorm", "hnorm"), ("eh_proj", "eh_proj"), ("post_norm", "shared_head.norm")):
        named[f"model.layers.{n}.{name}.weight"] = getattr(mtp.layers[0], own).weight.grad
    save_tensors(gold / "mtp.safetensors", dict(hidden_mtp=hidden))
    save_tensors(gold / "grads_mtp.safetensors", named)
    norm = math.sqrt(sum(t.double().pow(2).sum().item() for t in named.values()))
    return dict(about="the packed documents, trained with weight times the loss of the layer for multi-token prediction; "
                      "mtp_loss is before it, over as many labels as loss_mean",
                weight=MTP_WEIGHT, loss_mean=total.item() / count, mtp_loss=ahead.item() / count, grad_norm=norm)


def grads_of(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    out = {n: (torch.zeros_like(p) if p.grad is None else p.grad.detach().clone())
           for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return out


def freeze_indexers(model):
    """No loss has a gradient of them, and decay alone is no training."""
    for name, p in model.named_parameters():
        if ".indexer." in name:
            p.requires_grad_(False)


def params_of(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def adamw(params, cfg=TRAIN, biases=()):
    """Decay on tensors of two and more dimensions that are not biases (gpt_oss
    has biases [expert, out])."""
    params, flat = list(params), {id(p) for p in biases}
    decayed = [p.ndim >= 2 and id(p) not in flat for p in params]
    groups = [dict(params=[p for p, d in zip(params, decayed) if d], weight_decay=cfg["weight_decay"]),
              dict(params=[p for p, d in zip(params, decayed) if not d], weight_decay=0.0)]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=cfg["lr"], betas=(cfg["beta1"], cfg["beta2"]),
                             eps=cfg["eps"], foreach=False, fused=False)


def train_steps(model, batch, steps, snapshots=()):
    """Plain AdamW on one fixed batch.  loss and grad_norm are those before
    the step; grad_norm is before clipping."""
    opt = adamw((p for p in model.parameters() if p.requires_grad),
                biases=[p for n, p in model.named_parameters() if n.endswith("bias")])
    rows, kept = [], {}
    for step in range(1, steps + 1):
        opt.zero_grad(set_to_none=True)
        loss = mean_loss(model, batch)
        loss.backward()
        for p in model.parameters():
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)     # experts without tokens are decayed too
        norm = torch.nn.utils.clip_grad_norm_(
            [p for p in model.parameters() if p.requires_grad], TRAIN["max_grad_norm"], foreach=False)
        opt.step()
        rows.append(dict(step=step, loss=loss.item(), grad_norm=float(norm), clipped=bool(norm > TRAIN["max_grad_norm"])))
        if step in snapshots:
            kept[step] = params_of(model)
    with torch.no_grad():
        after = mean_loss(model, batch).item()
    return rows, after, kept


def bf16_curves(model, batch, steps):
    """Two common bf16 set-ups.  pure: parameters, gradients and Adam moments
    in bf16.  master: fp32 parameters and moments, bf16 copy for forward and
    backward (gradients come out in bf16 and are cast up)."""
    pure = copy.deepcopy(model).to(torch.bfloat16)
    rows_pure, after_pure, _ = train_steps(pure, batch, steps)

    master = copy.deepcopy(model)
    low = copy.deepcopy(model).to(torch.bfloat16)
    opt = adamw(master.parameters(), biases=[p for n, p in master.named_parameters() if n.endswith("bias")])
    rows = []
    for step in range(1, steps + 1):
        low.zero_grad(set_to_none=True)
        loss = mean_loss(low, batch)
        loss.backward()
        for p, q in zip(master.parameters(), low.parameters()):
            p.grad = q.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(master.parameters(), TRAIN["max_grad_norm"], foreach=False)
        opt.step()
        with torch.no_grad():
            for p, q in zip(master.parameters(), low.parameters()):
                q.copy_(p)
        rows.append(dict(step=step, loss=loss.item(), grad_norm=float(norm)))
    with torch.no_grad():
        after = mean_loss(low, batch).item()
    return dict(pure_bf16=dict(steps=rows_pure, loss_after=after_pure),
                fp32_master=dict(steps=rows, loss_after=after))


def router_margin(data, model):
    """Smallest gap, over tokens and layers, between the last chosen and the
    first rejected router score: below ~1e-5 a test could flip an expert."""
    cfg = model.config
    worst = math.inf
    for key, logits in data.items():
        if not key.startswith("router_logits_"):
            continue
        logits = logits.reshape(-1, logits.shape[-1])
        layer = model.model.layers[int(key.rsplit("_", 1)[1])]
        bias = getattr(router_of(layer), "e_score_correction_bias", getattr(mlp_of(layer), "expert_bias", None))
        k = getattr(cfg, "num_experts_per_tok", None) or cfg.top_k_experts
        scores = logits.double() if cfg.model_type == "gpt_oss" else logits.double().softmax(-1)
        groups = getattr(cfg, "n_group", None) or 1
        if bias is not None:
            scores = logits.double().sigmoid() + bias.double()
        if groups > 1:
            per = scores.shape[-1] // groups
            take = 2 if bias is not None else 1
            g = scores.view(-1, groups, per).topk(take, -1)[0].sum(-1)
            s = g.sort(-1, descending=True)[0]
            worst = min(worst, (s[:, cfg.topk_group - 1] - s[:, cfg.topk_group]).min().item())
            keep = torch.zeros_like(g).scatter_(1, g.topk(cfg.topk_group, -1)[1], 1)
            scores = scores.masked_fill(keep.repeat_interleave(per, -1) == 0, -math.inf)
        s = scores.sort(-1, descending=True)[0]
        gap = s[:, k - 1] - s[:, k]
        worst = min(worst, gap.min().item())
    return worst


def make_generation(model, spec, vocab, g):
    """Greedy decoding with model.generate (KV cache), each prompt alone."""
    cases = []
    cross = hasattr(rotary_of(model.model), "long_inv_freq")
    for length in spec.prompts:
        for _try in range(50):
            prompt = randint(g, 3, vocab, 1, length)
            out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=spec.new_tokens,
                                 do_sample=False, output_logits=True, return_dict_in_generate=True,
                                 eos_token_id=None, pad_token_id=0)
            tokens = out.sequences[0, length:]
            logits = torch.stack(out.logits, 0)[:, 0].float()
            top = logits.topk(2, -1)[0]
            gap = (top[:, 0] - top[:, 1]).min().item()
            whole = record(model, input_ids=out.sequences)
            if cross:       # longrope: a step's factors depend on the length so far
                whole["logits"] = torch.cat([record(model, input_ids=out.sequences[:, :n])["logits"][:, -1:]
                                             for n in range(1, out.sequences.shape[1] + 1)], dim=1)
            # decided, not one token over and over, and no expert choice on a knife's edge
            if gap > 0.01 and len(set(tokens.tolist())) >= 6 and router_margin(whole, model) > 5e-5:
                break
        else:
            raise AssertionError(f"{spec.name}: no clear-cut prompt of length {length}")
        full = whole["logits"][0, length - 1:-1]
        assert (full.argmax(-1) == tokens).all(), spec.name   # the cache must not change the answer
        assert len(tokens) == spec.new_tokens
        logp = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        cases.append(dict(prompt=prompt[0], tokens=tokens, logprobs=logp, min_top2_gap=sig(gap, 3),
                          cache_vs_full_max_diff=sig(max_diff(full, logits))))
    # the last prompt again, with an end token that first turns up inside its answer
    toks = cases[-1]["tokens"].tolist()
    stop = next(t for t in toks if toks.index(t) >= 4)
    prompt = cases[-1]["prompt"][None]
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=spec.new_tokens,
                         do_sample=False, eos_token_id=stop, pad_token_id=0)
    return dict(about="greedy, do_sample=False; logprobs are log_softmax of the raw fp32 logits at each step",
                cases=cases,
                stop_case=dict(prompt=prompt[0], eos_token_id=stop, tokens=out[0, prompt.shape[1]:],
                               about="generation ends with, and includes, the end token"))


@contextlib.contextmanager
def float64_everywhere():
    """transformers' modules cast to float32 in places, whatever the model's
    dtype; inside this block a float64 tensor stays float64."""
    olds = dict(float=torch.Tensor.float, to=torch.Tensor.to, type=torch.Tensor.type, softmax=torch.Tensor.softmax)
    old_f, old_t = F.softmax, torch.softmax

    def up(t, dtype):
        return torch.float64 if dtype is torch.float32 and t.dtype is torch.float64 else dtype

    def to(t, *args, **kw):
        args = tuple(up(t, a) if isinstance(a, torch.dtype) else a for a in args)
        if "dtype" in kw:
            kw["dtype"] = up(t, kw["dtype"])
        return olds["to"](t, *args, **kw)

    def soft(old):
        def run(t, *args, **kw):
            if kw.get("dtype") is not None:
                kw["dtype"] = up(t, kw["dtype"])
            return old(t, *args, **kw)
        return run
    torch.Tensor.float = lambda t, *a, **kw: t if t.dtype is torch.float64 else olds["float"](t, *a, **kw)
    torch.Tensor.to = to
    torch.Tensor.type = lambda t, *a, **kw: olds["type"](t, *[up(t, x) if isinstance(x, torch.dtype) else x for x in a], **kw)
    torch.Tensor.softmax = soft(olds["softmax"])
    F.softmax, torch.softmax = soft(old_f), soft(old_t)
    try:
        yield
    finally:
        for name, f in olds.items():
            setattr(torch.Tensor, name, f)
        F.softmax, torch.softmax = old_f, old_t


def rope_facts(model):
    """Frequencies as tensors for forward.safetensors, and numbers for golden.json."""
    rope = rotary_of(model.model)
    if rope is None:
        return {}, {}
    if hasattr(rope, "full_attention_inv_freq"):
        local, full = rope.sliding_attention_inv_freq, rope.full_attention_inv_freq
        return (dict(rope_inv_freq=full, rope_inv_freq_local=local),
                dict(inv_freq=full, attention_scaling=rope.full_attention_attention_scaling, inv_freq_local=local,
                     attention_scaling_local=rope.sliding_attention_attention_scaling))
    tensors = dict(rope_inv_freq=rope.inv_freq)
    numbers = dict(inv_freq=rope.inv_freq.clone(), attention_scaling=rope.attention_scaling)
    if hasattr(rope, "long_inv_freq"):
        assert (rope.inv_freq == rope.long_inv_freq).all()
        tensors["rope_inv_freq_short"] = rope.original_inv_freq
        numbers["inv_freq_short"] = rope.original_inv_freq
    return tensors, numbers


def write_longrope(model, root, batch):
    """Where the factors change over: n original positions are short, n + 1
    long.  And the config with the type's older name, which transformers 5 reads
    only with the original length inside rope_scaling, too."""
    import transformers
    n = model.config.original_max_position_embeddings
    ids = batch["input_ids"][:1, :n + 1]
    short, long = (record(model, input_ids=ids[:, :k])["logits"] for k in (n, n + 1))
    save_tensors(root / "golden" / "longrope.safetensors", dict(input_ids=ids, logits_short=short, logits_long=long))
    cfg = json.loads((root / "config.legacy.json").read_text())
    cfg["rope_scaling"]["type"] = "su"
    save_config(root / "config.su.json", cfg)
    cfg["rope_scaling"]["original_max_position_embeddings"] = n
    again = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**cfg), dtype=torch.float32,
                                                          attn_implementation="eager").eval()
    again.load_state_dict(model.state_dict())
    assert max_diff(record(again, input_ids=ids)["logits"], long) == 0.0


def make_model(spec, out, tokenizer_root=None):
    """One model folder with its goldens.  Returns the fp32 model."""
    root = fresh(out / "models" / spec.name)
    write_folder(spec, root)
    model = load_folder(spec, root)
    freeze_indexers(model)
    vocab = model.config.vocab_size
    g = gen(spec.seed + 5000)

    # --- the HF folder
    cfg = json.loads((root / "config.json").read_text())
    save_config(root / "config.legacy.json", hub_config(cfg, spec) if spec.hub else legacy_config(cfg))
    if spec.tokenizer and tokenizer_root is not None:
        for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            src = tokenizer_root / spec.tokenizer / f
            if src.exists():
                shutil.copyfile(src, root / f)
    gold = root / "golden"

    # --- padded batch
    batch = make_batch(spec, vocab, g)
    packed = make_packed(spec, vocab, g)
    data = record(model, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    nll, keep = nll_terms(data["logits"], batch["labels"])
    hf = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=batch["labels"],
               use_cache=False)
    loss = mean_loss(model, batch)
    assert abs(hf.loss.item() - loss.item()) < 1e-5
    blank = batch["attention_mask"]

    def zero_padding(d):
        out = {}
        for k, v in d.items():
            m = blank if v.ndim == 3 else blank.reshape(-1)
            out[k] = v * m.unsqueeze(-1).to(v.dtype)
        return out
    tensors = zero_padding(data)
    rope_tensors, rope_info = rope_facts(model)
    tensors.update(batch, token_nll=nll, **rope_tensors)
    save_tensors(gold / "forward.safetensors", tensors)
    if hasattr(rotary_of(model.model), "long_inv_freq"):
        write_longrope(model, root, batch)
    grads = grads_of(model, loss)
    save_tensors(gold / "grads.safetensors", to_checkpoint_names(model, grads))

    # --- packed row, by separate documents
    rec, total, count = packed_by_document(model, packed)
    packed_loss = total / count
    packed_grads = grads_of(model, packed_loss)
    with torch.no_grad():
        via_hf = model(input_ids=packed["input_ids"], position_ids=packed["position_ids"], use_cache=False).logits
    kept_rec = {k: v for k, v in rec.items() if k == "logits" or k.startswith(("hidden_", "index_topk_"))}
    save_tensors(gold / "packed.safetensors", dict(kept_rec, **packed))
    save_tensors(gold / "grads_packed.safetensors", to_checkpoint_names(model, packed_grads))

    info = dict(
        about=spec.about, seed=spec.seed, parameters=sum(p.numel() for p in model.parameters()),
        batch=dict(loss_sum=nll.sum().item(), loss_count=int(keep.sum()), loss_mean=loss.item(),
                   hf_loss=hf.loss.item(), grad_norm=math.sqrt(sum(t.double().pow(2).sum().item() for t in grads.values()))),
        packed=dict(doc_lengths=list(spec.docs), loss_sum=total.item(), loss_count=count, loss_mean=packed_loss.item(),
                    grad_norm=math.sqrt(sum(t.double().pow(2).sum().item() for t in packed_grads.values())),
                    hf_position_ids_path_max_diff=sig(max_diff(via_hf, rec["logits"]))),
        rope=dict(rope_info, softmax_scale=next(
            m.scaling for x in model.model.layers for k, m in mixers_of(x) if hasattr(m, "scaling"))))
    if spec.mtp and not model.config.model_type.startswith("qwen3_"):
        info["mtp"] = write_mtp(model, root, packed)
    if any(".indexer." in name for name, _ in model.named_parameters()):
        info["indexers"] = indexers.write(model, root, packed, info["packed"]["grad_norm"], float64_everywhere)
    if spec.bf16_exact:
        write_mxfp4(model, root, batch, data["logits"])

    # --- MoE extras
    moe = any(k.startswith("router_logits") for k in data)
    if moe:
        info["router_margin"] = sig(min(router_margin(data, model), router_margin(rec, model)), 3)
        assert info["router_margin"] > 1e-3, "pick another seed: a router choice is too close"
        aux_out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False,
                        output_router_logits=True)
        aux = getattr(aux_out, "aux_loss", None)
        # where a correction chooses, transformers' loss is of other experts, and no family here trains it
        if torch.is_tensor(aux) and not any("correction_bias" in name for name in model.state_dict()):
            info["aux_loss"] = dict(value=aux.item(), coef=getattr(model.config, "router_aux_loss_coef", None),
                                    about="load-balancing loss over non-padding tokens, before the coefficient")
            aux_grads = {n: v for n, v in grads_of(model, aux).items() if n.endswith(ROUTERS + (".router.bias",))}
            save_tensors(gold / "aux_loss_router_grads.safetensors", to_checkpoint_names(model, aux_grads))

    # --- optimiser steps
    trained = copy.deepcopy(model)
    rows, after, kept = train_steps(trained, batch, TRAIN["steps"], snapshots=(1, TRAIN["steps"]))
    for step, params in kept.items():
        save_tensors(gold / f"params_step{step}.safetensors", to_checkpoint_names(model, params))
    info["train"] = dict(settings=dict(TRAIN), steps=rows, loss_after=after)
    if spec.bf16:
        save_json(gold / "bf16.json", dict(bf16_curves(model, batch, TRAIN["steps"]),
                                           fp32=dict(steps=rows, loss_after=after)))

    # --- how large fp32 rounding is here: the same in float64
    def gap():
        wide = copy.deepcopy(model).double()
        wide_data = record(wide, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
        wide_grads = grads_of(wide, mean_loss(wide, batch))
        wide_rows, wide_after, wide_kept = train_steps(copy.deepcopy(model).double(), batch, TRAIN["steps"],
                                                       snapshots=(1, TRAIN["steps"]))
        for k in data:
            if k.startswith("router_experts"):
                assert (data[k] == wide_data[k]).all(), "an expert choice depends on rounding"
            if k.startswith("index_topk"):
                there = batch["attention_mask"].bool()
                assert (data[k][there] == wide_data[k][there]).all(), "a choice of keys depends on rounding"
        _, wide_total, wide_count = packed_by_document(wide, packed)
        wide_packed = grads_of(wide, wide_total / wide_count)
        packed_gap = max(rel_norm_diff(packed_grads[n], wide_packed[n]) for n in packed_grads)
        own = dict(packed_grads_worst_relative_norm=sig(packed_gap)) if packed_gap > 1e-5 else {}
        return dict(
            own, logits=sig(max_diff(data["logits"], wide_data["logits"])),
            loss=sig(abs(loss.item() - wide_rows[0]["loss"])),
            grads_worst_relative_norm=sig(max(rel_norm_diff(grads[n], wide_grads[n]) for n in grads)),
            params_step1_max=sig(max(max_diff(kept[1][n], wide_kept[1][n]) for n in grads)),
            params_step1_share_above_1e_5=sig(
                sum(((kept[1][n].double() - wide_kept[1][n]).abs() > 1e-5).sum().item() for n in grads) / info["parameters"]),
            params_step5_max=sig(max(max_diff(kept[5][n], wide_kept[5][n]) for n in grads)),
            params_step5_share_above_1e_5=sig(
                sum(((kept[5][n].double() - wide_kept[5][n]).abs() > 1e-5).sum().item() for n in grads) / info["parameters"]),
            loss_after_step5=sig(abs(after - wide_after)))
    about = "largest difference between this fp32 run and a float64 run: the size of honest rounding noise"
    if not spec.hub:
        info["fp64_gap"] = dict(about=about, **gap())
    else:
        half = gap()
        with float64_everywhere():
            whole = gap()
        info["fp64_gap"] = dict(about=about + "; the larger of two: transformers' own float64 run, which still computes norms, "
                                "softmax, rope and routers in float32, and one with these in float64, too",
                                **{k: max(half.get(k, 0), whole.get(k, 0)) for k in {**half, **whole}})
    save_json(gold / "golden.json", info)

    # --- generation
    save_json(gold / "generate.json", make_generation(model, spec, vocab, g))

    # --- the folder must load again, from either config spelling
    check_folder(root, batch, data["logits"])
    return model, batch


def check_folder(root, batch, logits):
    import transformers
    for cfg_name in ("config.json", "config.legacy.json"):
        cfg_dict = json.loads((root / cfg_name).read_text(),
                              object_hook=lambda o: float(o["__float__"]) if "__float__" in o else o)
        cfg = transformers.AutoConfig.for_model(**cfg_dict)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            root, config=cfg, dtype=torch.float32, attn_implementation="eager")
        if hasattr(model, "set_experts_implementation") and "expert" in json.dumps(cfg_dict):
            model.set_experts_implementation("eager")
        model.eval()
        with torch.no_grad():
            got = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], use_cache=False).logits
        assert max_diff(got, logits) < 1e-6, (root, cfg_name, max_diff(got, logits))


def family_models(out, specs=SPECS):
    for spec in specs:
        make_model(spec, out, tokenizer_root=out / "tokenizer")
        print("models", spec.name, flush=True)


def family_families(out, specs=FAMILY_SPECS):
    for spec in specs:
        make_model(spec, out)
        print("families", spec.name, flush=True)
