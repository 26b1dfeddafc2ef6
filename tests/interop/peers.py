# SPDX-License-Identifier: Apache-2.0
"""Runs jobs in one peer's environment: python peers.py JOBS.json RESULTS.json

A job is {"name": ..., "do": a function below, ...its arguments}. The result of each is "ok" or the last line of its error.
"""

import json
import shutil
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file


def read_texts(path):
    return [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]


def write_vectors(path, vectors):
    offsets = np.cumsum([0] + [len(v) for v in vectors]).astype(np.int64)
    rows = np.concatenate([np.asarray(v, dtype=np.float32) for v in vectors])
    save_file({"vectors": np.ascontiguousarray(rows), "offsets": offsets}, path)


# --- PyLate 1.6 --------------------------------------------------------------------------------------------------------------


def pylate_encode(model, texts, role, output):
    from pylate import models

    colbert = models.ColBERT(model, device="cpu")
    prompt = role if colbert.prompts.get(role) else None  # PyLate takes a prompt only when it is named
    write_vectors(output, colbert.encode(read_texts(texts), is_query=role == "query", prompt_name=prompt, show_progress_bar=False))


def pylate_save(minilm, output):
    from pylate import models

    torch.manual_seed(1)
    models.ColBERT(minilm, device="cpu", query_length=24, document_length=40).save_pretrained(output)


def pylate_save_layers(minilm, output):
    """Three projections, residuals of both kinds, no expansion, a short skiplist, a prompt."""
    from pylate import models
    from pylate.models.Dense import Dense
    from sentence_transformers.models import Transformer

    torch.manual_seed(2)
    gelu, identity = torch.nn.GELU(), torch.nn.Identity()
    layers = [Dense(384, 256, bias=True, activation_function=gelu, use_residual=True),
              Dense(256, 256, bias=False, activation_function=identity, use_residual=True),
              Dense(256, 96, bias=False, activation_function=identity)]
    model = models.ColBERT(modules=[Transformer(minilm), *layers], device="cpu", query_length=20, document_length=64,
                           do_query_expansion=False, skiplist_words=[".", ","], prompts={"query": "find: ", "document": ""})
    model.save_pretrained(output)


def stanford_save(minilm, output):
    """A folder as Stanford's ColBERT lays it out: `bert.` before every name, the projection in the same file."""
    from safetensors.torch import load_file, save_file as save_torch

    out = Path(output)
    out.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(Path(minilm) / name, out / name)
    config = json.loads((Path(minilm) / "config.json").read_text())
    config["architectures"] = ["HF_ColBERT"]
    (out / "config.json").write_text(json.dumps(config))
    tensors = {"bert." + name: value for name, value in load_file(Path(minilm) / "model.safetensors").items()}
    torch.manual_seed(3)
    tensors["linear.weight"] = torch.randn(128, 384) / 20
    save_torch(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "artifact.metadata").write_text(json.dumps({"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 28,
                                                       "doc_maxlen": 50, "attend_to_mask_tokens": False, "mask_punctuation": True}))


# --- Sentence Transformers 5.3 and 6.2, one vector a text -----------------------------------------------------------------


def dense_encode(model, texts, role, output):
    from sentence_transformers import SentenceTransformer

    embedder = SentenceTransformer(model, device="cpu")
    encode = embedder.encode_query if role == "query" else embedder.encode_document
    save_file({"embeddings": encode(read_texts(texts), show_progress_bar=False).astype(np.float32)}, output)


def dense_save(minilm, output):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(minilm, device="cpu", prompts={"query": "query: ", "document": "passage: "}).save_pretrained(output)


# --- Sentence Transformers 6.2, late interaction -------------------------------------------------------------------------------


def multi_vector_encode(model, texts, role, output):
    from sentence_transformers import MultiVectorEncoder

    encoder = MultiVectorEncoder(model, device="cpu")
    encode = encoder.encode_query if role == "query" else encoder.encode_document
    write_vectors(output, [v.cpu().numpy() for v in encode(read_texts(texts), show_progress_bar=False)])


def multi_vector_save(source, output):
    """Of a dense folder: a fresh head, no markers, no expansion. Of a PyLate folder: the same model in the new layout."""
    from sentence_transformers import MultiVectorEncoder

    torch.manual_seed(4)
    MultiVectorEncoder(source, device="cpu").save_pretrained(output)


def main():
    jobs = json.loads(Path(sys.argv[1]).read_text())
    results = {}
    for job in jobs:
        name, function = job.pop("name"), globals()[job.pop("do")]
        try:
            function(**job)
            results[name] = "ok"
        except Exception:
            traceback.print_exc()
            results[name] = traceback.format_exc().strip().splitlines()[-1]
    Path(sys.argv[2]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
