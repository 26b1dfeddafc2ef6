// SPDX-License-Identifier: Apache-2.0
// T2. What every door opens: encoders, data, the trainer and its callbacks, evaluation.
#pragma once

#include "toller/callbacks/checkpoint.hpp"
#include "toller/callbacks/progress_bar.hpp"
#include "toller/callbacks/tensor_board.hpp"
#include "toller/core/version.hpp"
#include "toller/encoder/auto_encoder.hpp"
#include "toller/encoder/bert.hpp"
#include "toller/distributed/spawn.hpp"
#include "toller/evaluate/beir.hpp"
#include "toller/evaluate/retrieval.hpp"
#include "toller/gather/gather.hpp"
#include "toller/parallelism/ddp.hpp"
#include "toller/parallelism/single_device.hpp"
#include "toller/precision/bf16_mixed.hpp"
#include "toller/precision/fp32.hpp"
#include "toller/step/accumulate.hpp"
#include "toller/step/grad_cache.hpp"
#include "toller/text/read_jsonl.hpp"
#include "toller/text/read_tsv.hpp"
#include "toller/text/views.hpp"
#include "toller/train/trainer.hpp"
