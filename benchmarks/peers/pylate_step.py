# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyLate (--kind colbert) or of Sentence Transformers 5 (--kind dense), as train_step.cpp times toller's."""
import step

args = step.options(["colbert", "dense"])
import torch

torch.set_num_threads(args.threads)
torch.manual_seed(0)
if args.kind == "colbert":
    from pylate import losses, models

    model = models.ColBERT(args.model, embedding_size=128, query_length=32, document_length=args.doc_length, device="cpu")
    loss = losses.Contrastive(model=model)

    def tokenize(queries, positives):
        return [model.tokenize(queries, is_query=True), model.tokenize(positives, is_query=False)]
else:
    from sentence_transformers import SentenceTransformer, losses

    model = SentenceTransformer(args.model, device="cpu")
    model.max_seq_length = args.doc_length
    loss = losses.MultipleNegativesRankingLoss(model)

    def tokenize(queries, positives):
        return [model.tokenize(queries), model.tokenize(positives)]

step.run(args, "pylate" if args.kind == "colbert" else "st5-dense", model, loss, tokenize)
