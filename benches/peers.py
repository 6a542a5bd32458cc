#!/usr/bin/env python3
"""The other side of benches/pass.rs and benches/training.rs: the same work in Python `transformers`.

Started by these, one process per side; does its work once for every line of stdin and answers with a line of JSON.

    peers.py eager FOLDER PROMPT THREADS    forward pass, output_attentions=True: share of the answer of every head
    peers.py sdpa FOLDER PROMPT THREADS     forward pass through SDPA, which reports nothing
    peers.py train FOLDER BATCH THREADS     training step: forward, backward, clip, AdamW

PROMPT is {"ids": [...], "rows": [first, last], "answer": [first, last]}, last exclusive; BATCH is {"ids": [[...], ...],
"rate": x}. All in float32 on the CPU. Written for torch 2.15 and transformers 5.23.
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
    model = load(folder, "sdpa").train()
    ids = torch.tensor(batch["ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=batch["rate"], betas=(0.9, 0.95), weight_decay=0.1)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.item()}

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
        start = time.perf_counter()
        reply = work()
        reply["seconds"] = time.perf_counter() - start
        reply["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
