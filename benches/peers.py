#!/usr/bin/env python3
"""The other side of benches/pass.rs and benches/training.rs: the same work in Python `transformers`.

Started by these, one process per side; does its work once for every line of stdin and answers with a line of JSON.

    peers.py eager FOLDER PROMPT THREADS    forward pass, output_attentions=True: share of the answer of every head
    peers.py sdpa FOLDER PROMPT THREADS     forward pass through SDPA, which reports nothing
    peers.py train FOLDER BATCH THREADS     training step: forward, backward, clip, AdamW

PROMPT is {"ids": [...], "rows": [first, last], "answer": [first, last]}, last exclusive; BATCH is {"ids": [[...], ...],
"optimizer": {"rate": x, ...}}, the latter as in a training spec. All in float32 on the CPU. Written for torch 2.15 and transformers 5.23.
"""

import json
import resource
import sys
import time

import torch
import transformers
from transformers import AutoModelForCausalLM

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def load(folder, attention):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)


def effective(model, layer, maps):
    """(heads, rows, T): what weighs the values, from the raw maps (raw heads, rows, T) of one layer."""
    attention = model.model.layers[layer].self_attn
    if not hasattr(attention, "lambda_q1"):
        return maps
    first, second = maps.chunk(2)
    l1 = torch.exp(torch.sum(attention.lambda_q1 * attention.lambda_k1))
    l2 = torch.exp(torch.sum(attention.lambda_q2 * attention.lambda_k2))
    return first - (l1 - l2 + attention.lambda_init) * second


@torch.inference_mode()
def forward(model, prompt, attentions):
    """One pass; the share of the answer in the rows that predict it, by layer and head, if maps are asked for."""
    ids = torch.tensor([prompt["ids"]])
    out = model(ids, use_cache=False, output_attentions=attentions, logits_to_keep=1)
    if not attentions:
        return None
    rows, answer = slice(*prompt["rows"]), slice(*prompt["answer"])
    shares = []
    for layer, maps in enumerate(out.attentions):
        weights = effective(model, layer, maps[0, :, rows]).abs()
        shares.append((weights[:, :, answer].sum((1, 2)) / weights.sum((1, 2))).tolist())
    return shares


def trainer(folder, batch):
    # SDPA, the default for these models and the faster one; eager in PyTorch's sense, that is not compiled.
    model = load(folder, "sdpa").train()
    ids = torch.tensor(batch["ids"])
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    spec = batch["optimizer"]
    settings = dict(lr=spec["rate"], betas=(spec["beta1"], spec["beta2"]), eps=1e-8, weight_decay=spec["weight_decay"])
    optimizer = torch.optim.AdamW(groups, fused=True, **settings)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(ids, labels=ids, use_cache=False).loss  # shifts the labels: the last token predicts nothing
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), spec["clip"])
        optimizer.step()
        return {"loss": loss.item(), "norm": norm.item()}

    return step


def main():
    mode, folder, path, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    with open(path) as file:
        given = json.load(file)
    if mode == "train":
        work = trainer(folder, given)
    else:
        model = load(folder, mode).eval()
        work = lambda: {"shares": forward(model, given, mode == "eager")}
    for _ in sys.stdin:
        start, cpu_start = time.perf_counter(), time.process_time()
        reply = work()
        reply["seconds"] = time.perf_counter() - start
        reply["cpu_s"] = time.process_time() - cpu_start
        reply["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
