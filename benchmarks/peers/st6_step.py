# SPDX-License-Identifier: Apache-2.0
"""Training steps of Sentence Transformers 6, with many vectors a text (--kind mve) or one (--kind dense)."""
import step

args = step.options(["mve", "dense"])
import torch

torch.set_num_threads(args.threads)
torch.manual_seed(0)
if args.kind == "mve":
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.multi_vector_encoder import losses

    model = MultiVectorEncoder(args.model, device="cpu")
    loss = losses.MultiVectorMultipleNegativesRankingLoss(model)
else:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(args.model, device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model)
model.max_seq_length = args.doc_length


def tokenize(queries, positives):
    return [model.preprocess(queries, task="query"), model.preprocess(positives, task="document")]


step.run(args, f"st6-{args.kind}", model, loss, tokenize)
